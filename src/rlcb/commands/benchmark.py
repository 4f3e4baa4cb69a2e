"""`rlcb benchmark`: a whole suite."""

from collections.abc import Sequence
from pathlib import Path

from rlcb.commands.flags import Parser, add_keys, answered, flag_of


def benchmark_verb(argv: Sequence[str]) -> int:
    """`rlcb benchmark …`: a whole suite; the settings of a suite file are flags here, and so are config keys."""
    from rlcb.suite.benchmark import benchmark
    from rlcb.suite.settings import PASSED_ON, SuiteConfig
    from rlcb.yamlfile import parse_scalar

    parser = Parser(
        prog="rlcb benchmark",
        description="Train algorithms × modes × seeds × games one after the other, evaluate each, write a report.",
    )
    parser.add_argument("--suite", type=Path, metavar="FILE", help="YAML file with the settings that follow as keys")
    default = Path("benchmarks") / "suite"
    text = f"where all of it is kept, default ./{default}; a suite that is there already is continued"
    parser.add_argument("--output-dir", type=Path, metavar="DIR", default=default, help=text)
    for key, field in SuiteConfig.model_fields.items():
        if key != "overrides":
            several = isinstance(field.default, list)
            usual = " ".join(map(str, field.default)) if several else field.default
            text = f"{field.description}" + ("" if usual is None else f"; default {usual}")
            parser.add_argument(flag_of(key), dest=key, nargs="+" if several else None, metavar="VALUE", help=text)
    add_keys(parser, PASSED_ON)
    parser.epilog = "--num-envs counts all environments of a run, in either mode. Exit code 1: a run, an evaluation "
    parser.epilog += "or the report failed and all else is done; start again to retry."
    given = {key: value for key, value in vars(parser.parse(argv)).items() if value is not None}
    output, file = given.pop("output_dir"), given.pop("suite", None)
    values = {k: [parse_scalar(one) for one in v] if isinstance(v, list) else parse_scalar(v) for k, v in given.items()}
    flags = {key: (flag_of(key), value) for key, value in values.items()}
    return answered(parser.prog, lambda: benchmark(output, file, flags))
