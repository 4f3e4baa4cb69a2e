"""Environment, seed and algorithm from the settings that RLlib and Sample Factory write beside their logs."""

from pathlib import Path

from rlcb.analysis.untrusted import plain, read_object
from rlcb.errors import UsageError


def settings_beside(folder: Path) -> dict[str, str]:
    """What RLlib's params.json in the folder, or Sample Factory's config.json above .summary/N, says; else nothing."""
    above = folder.absolute().parent
    file = above.parent / "config.json" if above.name == ".summary" else folder / "params.json"
    try:
        settings = read_object(file)
    except UsageError:
        return {}  # the labels are then guessed from names, or unknown
    found = {"env": settings.get("env"), "seed": settings.get("seed"), "algorithm": settings.get("algo")}
    texts = {name: plain(value if isinstance(value, str) else str(value)) for name, value in found.items()}
    return {name: text for name, text in texts.items() if text and text != "None"}
