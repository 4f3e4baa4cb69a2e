"""The work of cluster_demo.sh: a cluster of three nodes on this machine, runs with a node lost in the middle."""

import os
import secrets
import subprocess
import sys
from pathlib import Path

STEPS = {"ppo": 40_960, "impala": 81_920}
LOCAL = {"ppo": ("--backend", "gloo"), "impala": ()}
COMMON = ("--num-workers", "4", "--num-envs", "8", "--num-threads", "1", "--seed", "1", "--log-interval", "3")


def run(algorithm: str, path: Path, *more: str, at_update: int = 0, event: object = None) -> None:
    """One training run; `event` is called when it shows this update."""
    command = [sys.executable, "-m", "rlcb", "train", algorithm, "--mode", "parallel", *COMMON, *more]
    command += ["--total-timesteps", str(STEPS[algorithm]), "--output-dir", str(path)]
    print(f"$ rlcb {' '.join(command[3:])}", flush=True)
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            print(line, end="", flush=True)
            if at_update and line.startswith(f"Update {at_update} "):
                assert callable(event)
                event()
    if process.returncode:
        sys.exit(process.returncode)


def main() -> None:
    """Start the cluster, run, compare."""
    output = Path(sys.argv[1])
    os.environ.update(RAY_AUTH_MODE="token", RAY_AUTH_TOKEN=secrets.token_hex(32), RAY_USAGE_STATS_ENABLED="0")
    from ray.cluster_utils import Cluster

    memory = {"object_store_memory": 200 * 2**20}
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False, **memory})
    try:
        for algorithm in STEPS:
            while len(cluster.worker_nodes) < 2:
                cluster.add_node(num_cpus=2, **memory)

            def lose_a_node() -> None:
                print(">>> a node is removed", flush=True)
                cluster.remove_node(next(iter(cluster.worker_nodes)), allow_graceful=False)

            path = output / f"{algorithm}_cluster"
            run(algorithm, path, "--cluster", cluster.address, at_update=3, event=lose_a_node)
    finally:
        cluster.shutdown()
    for algorithm in STEPS:
        run(algorithm, output / f"{algorithm}_local", *LOCAL[algorithm])
    compare = [sys.executable, "-m", "rlcb", "compare", str(output), "--output", str(output / "report")]
    sys.exit(subprocess.run(compare, check=False).returncode)


if __name__ == "__main__":
    main()
