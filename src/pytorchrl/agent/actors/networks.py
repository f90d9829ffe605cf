"""A network of an actor by name or by class: looked up, its parameters checked, built."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from torch import nn

from pytorchrl.component import Component
from pytorchrl.errors import ConfigError, suggestion


def build_network(
    kind: str,
    known: dict[str, type[nn.Module]],
    choice: str | type[nn.Module],
    given: Any,
    kwargs: Mapping[str, Any],
) -> nn.Module:
    """The network of a name in ``known``, or of a class of the user's, which takes ``given`` first.

    Whoever reads it needs its ``num_features``. From then on the class is known by its name: that is what files say.
    """
    network = choice
    if isinstance(network, str):
        if network not in known:
            raise ConfigError(
                f"unknown {kind} '{network}'", f"{suggestion(network, known)} A class of your own can be given."
            )
        network = known[network]
    if not (isinstance(network, type) and issubclass(network, nn.Module)):
        raise ConfigError(f"a {kind} is a name or a class of torch.nn.Module, got {network!r}")
    name = network.__name__
    if known.get(name, network) is not network and known[name].__module__.startswith("pytorchrl."):
        raise ConfigError(f"'{name}' is the name of a {kind} of pytorchrl", "Give your class another name.")
    if issubclass(network, Component):
        (first,) = network.supplied_parameters
        built: nn.Module = network(**network.complete({first: given, **kwargs}))
    else:
        _refuse_unknown(network, kwargs)
        built = network(given, **kwargs)
    if not isinstance(getattr(built, "num_features", None), int):
        raise ConfigError(
            f"{kind} {network.__name__} has no num_features", "Set it to the size of the vectors that it returns."
        )
    known[name] = network
    return built


def _refuse_unknown(network: type[nn.Module], kwargs: Mapping[str, Any]) -> None:
    """``ConfigError`` for a name that the constructor of a user's class does not take."""
    parameters = inspect.signature(network).parameters
    if any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters.values()):
        return
    names = list(parameters)[1:]
    for name in kwargs:
        if name not in names:
            raise ConfigError(f"{network.__name__} has no parameter '{name}'", suggestion(name, names))
