"""pytorchrl completion: what a shell needs to finish words, drawn from the program's own parser."""

from __future__ import annotations

import argparse

from pytorchrl.cli.listing import LISTS
from pytorchrl.cli.main import MODULES, Parser, command_parser, flags_of
from pytorchrl.console import say
from pytorchrl.errors import ConfigError, suggestion
from pytorchrl.export import FORMATS
from pytorchrl.registry import ALGORITHMS

SHELLS = ("bash", "zsh", "fish")


def run(options: argparse.Namespace, parser: Parser) -> int:
    if options.shell not in SHELLS:
        raise ConfigError(f"no completion for '{options.shell}'", suggestion(options.shell, SHELLS))
    say(fish(parser) if options.shell == "fish" else bash(parser, options.shell == "zsh"))
    return 0


def words_of(parser: Parser, command: str) -> list[str]:
    """What may follow a command, beside the files that every shell finishes by itself."""
    algorithms = [name.lower() for name in ALGORITHMS]
    words = {"train": algorithms, "tune": algorithms, "list": list(LISTS), "completion": list(SHELLS)}
    return [*words.get(command, []), *(flag for flag in flags_of(parser, command) if flag.startswith("--"))]


def bash(parser: Parser, zsh: bool = False) -> str:
    """A function that bash calls; zsh understands it after bashcompinit."""
    cases = [f'    {command}) words="{" ".join(words_of(parser, command))}" ;;' for command in MODULES]
    return "\n".join(
        [
            *(["autoload -U +X compinit bashcompinit && compinit && bashcompinit"] if zsh else []),
            "_pytorchrl() {",
            '  local words="" current="${COMP_WORDS[COMP_CWORD]}"',
            '  case "${COMP_WORDS[COMP_CWORD-1]}" in',
            f'    --format) COMPREPLY=($(compgen -W "{" ".join(FORMATS)}" -- "$current")); return ;;',
            "  esac",
            '  if [ "$COMP_CWORD" -eq 1 ]; then',
            f'    words="{" ".join(MODULES)} --version --help"',
            '  else case "${COMP_WORDS[1]}" in',
            *cases,
            "  esac; fi",
            '  COMPREPLY=($(compgen -W "$words" -- "$current"))',
            "}",
            "complete -o default -F _pytorchrl pytorchrl",
        ]
    )


def fish(parser: Parser) -> str:
    """One line per word."""
    lines = []
    for command in MODULES:
        lines.append(f"complete -c pytorchrl -n __fish_use_subcommand -a {command}")
        seen = f'-n "__fish_seen_subcommand_from {command}"'
        texts = {
            flag: action.help or ""
            for action in command_parser(parser, command)._actions
            for flag in action.option_strings
        }
        for word in words_of(parser, command):
            if word.startswith("--"):
                text = texts[word].replace("'", "\\'")
                lines.append(f"complete -c pytorchrl {seen} -l {word[2:]} -d '{text}'")
            else:
                lines.append(f"complete -c pytorchrl {seen} -a {word}")
    return "\n".join(lines)
