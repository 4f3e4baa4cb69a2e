"""The user's own modules in a configuration: which ones it names, and where; they are imported if that is permitted."""

from typing import Any

from rlcb.config.division import Given, Sources
from rlcb.config.schema import Config
from rlcb.envs.own_code import load, module_of
from rlcb.errors import NotPermitted
from rlcb.hardware import prepare_process


def with_imports(given: Given) -> dict[str, tuple[str, Any]]:
    """The keys of a file or of flags with `env.name: module:Env-v0` taken apart: the module is one to import."""
    place, name = given.get("name", ("", None))
    module = module_of(name) if isinstance(name, str) else None
    if module is None:
        return dict(given)
    listed = given.get("imports", (place, []))
    more = (listed[0], [*listed[1], module]) if isinstance(listed[1], list) else listed
    return {**given, "name": (place, str(name).partition(":")[2]), "imports": more}


def joined_imports(before: Any, more: Any, place: str, source: Sources) -> Any:
    """The modules named before and those named here, each once; anything but lists stays for the validation."""
    if not isinstance(more, list) or not isinstance(before, list | None):
        return more
    for module in more:
        source.setdefault(f"imports.{module}", place)
    return list(dict.fromkeys([*(before or []), *more])) if all(isinstance(one, str) for one in more) else more


def import_words(config: Config) -> list[str]:
    """What permits a command of this program to import a configuration's modules, as this process was permitted."""
    return [word for module in config.modules for word in ("--import", module)]


def imported(config: Config, source: Sources) -> Config:
    """The configuration once its modules are imported here; one that the command line does not name is refused."""
    if not config.modules:
        return config
    prepare_process(config.hardware.num_threads)  # they may import torch
    network = module_of(config.training.network)
    for module in config.modules:
        try:
            load(module)
        except NotPermitted as error:
            key = "network" if module == network else "imports"
            raise NotPermitted(f"{source.get(f'imports.{module}', source[key])} {error}") from None
    # The network names its module itself.
    return config.changed("env", imports=[module for module in config.env.imports if module != network])
