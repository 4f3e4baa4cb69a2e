"""Output of a run: lines, and on a terminal a progress bar below them; warnings and notes."""

import sys

from rlcb.run.metrics import Metrics

LINE = "=" * 70  # above and below banners and summaries


class Console:
    """Prints lines to standard output; on a terminal keeps a bar at the bottom."""

    def __init__(self, label: str):
        self._bar = _Bar(label) if sys.stdout.isatty() else None

    def close(self) -> None:
        """End the bar where it is; later lines follow below it."""
        if self._bar:
            self._bar.close()
            self._bar = None

    def line(self, text: str) -> None:
        """Print one line above the bar."""
        if self._bar:
            self._bar.line(text)
        else:
            print(text, flush=True)

    def progress(self, fraction: float, detail: str) -> None:
        """Move the bar, if there is one."""
        if self._bar:
            self._bar.move(fraction, detail)


class _Bar:
    """A rich progress bar, redrawn by calls alone: a thread for it would take time from training."""

    def __init__(self, label: str):
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.percentage:>3.0f}%"),
            TimeElapsedColumn(),
            TextColumn("<"),
            TimeRemainingColumn(),
            TextColumn("{task.fields[detail]}"),
        )
        self._progress = Progress(*columns, auto_refresh=False)
        self._task = self._progress.add_task(label, total=1.0, detail="")
        self._progress.start()

    def line(self, text: str) -> None:
        self._progress.console.print(text, markup=False, highlight=False, soft_wrap=True)

    def move(self, fraction: float, detail: str) -> None:
        self._progress.update(self._task, completed=min(fraction, 1.0), detail=detail, refresh=True)

    def close(self) -> None:
        self._progress.stop()


def timed_lines(metrics: Metrics, hours: float) -> str:
    """The two lines of one logged update of a run that stops by time."""
    mean, loss = metrics["rollout/ep_reward_mean"], metrics["loss/total"]
    return (
        f"[{metrics['time'] / 3600:.2f}h/{hours:.2f}h] Step: {metrics['step']:,} | Updates: {metrics['update']:,} | "
        f"FPS: {metrics['time/fps']:.0f} | Loss: {'n/a' if loss is None else format(loss, '.4f')}\n"
        f"  Mean Reward (last 100): {'n/a' if mean is None else format(mean, '.2f')}"
    )


def update_line(metrics: Metrics) -> str:
    """The line of one logged update."""
    mean, std = metrics["rollout/ep_reward_mean"], metrics["rollout/ep_reward_std"]
    reward = "n/a" if mean is None else f"{mean:.2f} ± {std:.2f}"
    return f"Update {metrics['update']} | Step {metrics['step']:,} | FPS: {metrics['time/fps']:.0f} | Reward: {reward}"


def warn(text: str) -> None:
    """Tell the user about something that did not stop the program."""
    print(f"warning: {text}", file=sys.stderr, flush=True)


def note(text: str) -> None:
    """Tell the user what the program did on its own."""
    print(f"note: {text}", file=sys.stderr, flush=True)
