"""`rlcb configs`: the configurations and suites of the package, as a list or one of them as it is."""

import difflib

from rlcb.config.named import configs, description_of, folder, suites, text_of
from rlcb.errors import UsageError


def print_configs(name: str | None) -> int:
    """Print the list, or the file of a name."""
    if name is None:
        _print_list()
        return 0
    known = {**configs(), **suites()}
    if name not in known:
        close = difflib.get_close_matches(name, known, 1)
        hint = f"did you mean {close[0]}?" if close else f"valid: {', '.join(known)}"
        raise UsageError(f"{name!r} is not a built-in configuration or suite; {hint}")
    print(text_of(known[name]), end="")
    return 0


def _print_list() -> None:
    parts = {"Configurations, for --config NAME": configs(), "Suites, for rlcb benchmark --suite NAME": suites()}
    width = max((len(name) for files in parts.values() for name in files), default=0)
    for title, files in parts.items():
        print(f"{title}:")
        for name, file in files.items():
            print(f"  {name:<{width}}  {description_of(file)}")
        print()
    print("Without --config, a run uses <algorithm>_<mode>. To change one: rlcb configs NAME > mine.yaml, edit it,")
    print("and pass --config mine.yaml or --suite mine.yaml.")
    print(f"Files: {folder()}")
