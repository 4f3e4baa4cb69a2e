"""How long an evaluation takes beside a plain loop that plays one environment at a time, in the same run.

    python perf/evaluate_speed.py --rounds 2 --episodes 100

Both play EPISODES episodes of CoinRun (easy, 200 levels) with the same policy, drawing its actions; loading is not
timed. They take turns, and the order changes from round to round. Without --checkpoint a policy is trained for one
short rollout first: hardly better than chance, so its episodes are long. Ends with 1 if the ratio is above a quarter.
"""

import argparse
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median

REPO = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(REPO / "src"))

from rlcb.hardware import cpu_model, prepare_process, usable_cpus  # noqa: E402

LIMIT = 0.25


@dataclass(frozen=True)
class Timing:
    """One way of playing, once."""

    seconds: float
    steps: int
    mean_reward: float


def trained_checkpoint(folder: Path) -> Path:
    """Train PPO for a single small rollout."""
    run = folder / "run"
    flags = "--num-envs 8 --n-steps 32 --batch-size 256 --n-epochs 1 --total-timesteps 256 --tensorboard false"
    command = [sys.executable, "-m", "rlcb", "train", "ppo", *flags.split(), "--output-dir", str(run)]
    done = subprocess.run(command, cwd=REPO, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"training failed: {done.stderr.strip()[-2000:]}")
    return run


def measure(checkpoint: Path, episodes: int, rounds: int, threads: int) -> dict[str, list[Timing]]:
    """Both ways, in turns."""
    import torch

    from rlcb.envs.families import make_env
    from rlcb.evaluation.play import Actor, default_num_envs, play, quotas_of
    from rlcb.evaluation.policy import build_policy, environment_for, find_policy

    torch.set_num_threads(threads)
    trained = find_policy(checkpoint, None)
    config, spec = environment_for(trained, None)
    policy = build_policy(trained, spec, "cpu")

    def together(seed: int) -> Timing:
        num_envs = default_num_envs(episodes)
        started = time.perf_counter()
        actor = Actor(policy, spec, "cpu", torch.Generator().manual_seed(seed))
        env = make_env(config, num_envs, seed, threads if threads > 1 else 0)
        *_, tally = play(env, actor, quotas_of(episodes, num_envs))
        return Timing(time.perf_counter() - started, tally.steps, sum(tally.rewards) / episodes)

    @torch.inference_mode()
    def one_at_a_time(seed: int) -> Timing:
        started = time.perf_counter()
        generator = torch.Generator().manual_seed(seed)
        env = make_env(config, num_envs=1, seed=seed, num_threads=0)
        observations, steps, played, total = env.observe(), 0, 0, 0.0
        while played < episodes:
            probabilities = torch.softmax(policy(torch.from_numpy(observations))[0], dim=1)
            step = env.step(torch.multinomial(probabilities, 1, generator=generator)[:, 0].numpy())
            observations, steps, total = step.observations, steps + 1, total + float(step.rewards[0])
            played += int(step.dones[0])
        env.close()
        return Timing(time.perf_counter() - started, steps, total / episodes)

    ways = {"together": together, "one at a time": one_at_a_time}
    timings: dict[str, list[Timing]] = {name: [] for name in ways}
    for number in range(rounds):
        for name in list(ways) if number % 2 == 0 else reversed(list(ways)):
            timings[name].append(ways[name](number))
            last = timings[name][-1]
            speed = f"{last.steps / last.seconds:,.0f} steps/s"
            print(
                f"round {number + 1}: {name}: {last.seconds:.2f} s, {speed}, reward {last.mean_reward:.2f}", flush=True
            )
    return timings


def main() -> int:
    """Measure and print the ratio."""
    parser = argparse.ArgumentParser(description="Evaluation beside a loop over one environment at a time.")
    parser.add_argument("--checkpoint", type=Path, help="a CoinRun checkpoint or run, default one trained on the spot")
    parser.add_argument("--episodes", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--threads", type=int, default=usable_cpus())
    arguments = parser.parse_args()
    prepare_process(arguments.threads)
    print(f"{cpu_model()}, {arguments.threads} threads, {arguments.episodes} episodes of CoinRun", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        checkpoint = arguments.checkpoint or trained_checkpoint(Path(folder))
        timings = measure(checkpoint, arguments.episodes, arguments.rounds, arguments.threads)
    ratio = median(t.seconds for t in timings["together"]) / median(t.seconds for t in timings["one at a time"])
    print(f"ratio of the medians: {ratio:.3f} (limit {LIMIT})")
    return int(ratio > LIMIT)


if __name__ == "__main__":
    sys.exit(main())
