"""Whether environment and network fit each other and this program, checked before a run starts."""

from dataclasses import dataclass, replace

from rlcb.config.schema import Config
from rlcb.console import note
from rlcb.envs.base import EnvSpec
from rlcb.envs.families import spec_of, tried_out
from rlcb.envs.own_code import module_of
from rlcb.words import counted


@dataclass(frozen=True)
class Fit:
    """What was found out."""

    spec: EnvSpec
    repeats: bool | None = None  # equal seeds and actions give equal episodes; None: known of the whole family
    num_weights: int | None = None  # of the network, where it was made

    @property
    def words(self) -> str:
        """The environment's spaces, for people."""
        shape = " × ".join(map(str, self.spec.observation_shape))
        actions = counted(self.spec.num_actions, "continuous action" if self.spec.continuous else "action")
        return f"{shape} {self.spec.observation_dtype} observations, {actions}"


def check_fit(config: Config) -> Fit:
    """Try the environment and make the network once; what does not fit is a UsageError."""
    trial = tried_out(config.env)
    fit = Fit(spec_of(config.env)) if trial is None else Fit(*trial)
    if fit.repeats is False:
        note(
            f"{config.env.name} is not deterministic for a given seed and actions, so a resumed run continues, but "
            "not exactly; draw all random numbers in it from self.np_random"
        )
    name = config.training.network
    if name != "auto" or config.training.normalize_observations:
        import torch

        from rlcb.networks.policy import make_policy_network

        with torch.device("meta"):  # the shapes suffice
            policy = make_policy_network(config.training, fit.spec)
        fit = replace(fit, num_weights=sum(parameter.numel() for parameter in policy.parameters()))
        if module_of(name):
            from rlcb.networks.own import check_outputs, make

            with torch.device("meta"):
                network = make(name, fit.spec)
            precision = config.hardware.precision
            check_outputs(name, network, fit.spec, "fp32" if precision == "auto" else precision)
    return fit
