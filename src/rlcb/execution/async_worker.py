"""The role `async_worker`: acts, computes gradients and applies them to shared parameters without waiting (A3C)."""

from rlcb.comm.control import Heartbeat
from rlcb.execution.entry import WorkerContext
from rlcb.execution.loop import learn
from rlcb.execution.messages import Applied, AsyncSetup, Go, Started, Waiting
from rlcb.execution.schedule import Schedule
from rlcb.execution.worker import Worker


def work(context: WorkerContext, setup: AsyncSetup) -> None:
    """Act, compute a gradient, apply it, report; again, as long as there is work."""
    channel, control, config = context.channel, context.control, setup.config
    parameters = context.parameters(setup)
    worker = Worker(
        config,
        env_threads=setup.num_threads if setup.num_threads > 1 else 0,
        rank=setup.index,
        seed_key=setup.seed_key,
        shared=parameters,
        heartbeat=Heartbeat(control, setup.index),
    )
    worker.normalizer.moments = setup.reward_moments
    channel.send(Started(worker.num_envs))
    while True:
        go: Go = channel.recv()
        schedule = Schedule(config, go.zero)
        parameters.refresh()
        while not control.stop and parameters.take():
            fraction = schedule.fraction(setup.steps_before + parameters.applied() * config.rollout_size)
            rollout = worker.collector.collect()
            update, seconds = learn(worker, rollout, schedule.learning_rate(fraction), setup.dumps)
            if update.skipped_steps:
                parameters.refresh()  # the others may have moved on from what this gradient was taken at
            episodes, moments = worker.collector.episodes, worker.normalizer.moments
            channel.send(Applied(update.metrics, seconds, update.skipped_steps, episodes, parameters.lag, moments))
        channel.send(Waiting())
