"""The reader of configuration files: what it takes, what it refuses with a line, and that it never fails otherwise."""

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import strictyaml
from hypothesis import given, settings
from hypothesis import strategies as st

from pytorchrl.buffers import PPOBuffer, SimpleReplayBuffer
from pytorchrl.errors import ConfigError
from pytorchrl.parameters import Node
from pytorchrl.strict_yaml import DEEPEST_NESTING, LARGEST_FILE, parse_yaml, read_yaml, to_yaml

GOOD = "obs_dim: 8\nact_dim: 2\nsize: 1_000\nbatch_size: 64\n"
WRAPPED = "name: PPOBuffer\nconfig:\n  obs_dim: 8\n  act_dim: 2\n  size: 1_000\n  batch_size: 64\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("configs")


class TestWhatIsRead:
    def test_scalars_stay_text_and_keep_their_line(self) -> None:
        root = parse_yaml("a: 1\nb:\n  - x\n  - [2, yes]\nc: {d: 0x10, e: '3'}\n", "f")
        assert root.plain() == {"a": "1", "b": ["x", ["2", "yes"]], "c": {"d": "0x10", "e": "3"}}
        assert root.value["a"] == Node("1", 1, text=True)
        assert [item.line for item in root.value["b"].value] == [3, 4]
        assert root.value["c"].value["e"].line == 5

    @pytest.mark.parametrize("gap", ["\n", "\n\n\n", " # nothing\n\n"])
    def test_a_value_left_out_stands_on_the_line_of_its_key(self, gap: str) -> None:
        root = parse_yaml(f"a: 1\nb:{gap}c: 2\n", "f")
        assert root.value["b"] == Node("", 2, text=True)

    @pytest.mark.parametrize(
        "text",
        [
            GOOD,
            GOOD.replace("\n", "\r\n"),
            GOOD.replace("\n", "\r"),
            "\ufeff" + GOOD,
            "# comment\n---\n" + GOOD + "...\n",
            "%YAML 1.1\n---\n" + GOOD,
            "{obs_dim: 8, act_dim: '2', size: \"1_000\", batch_size: 64}",
            GOOD.replace("64", "|-\n  64"),
            WRAPPED,
            "name: PPOBuffer\nconfig: {obs_dim: 8, act_dim: 2, size: 1_000, batch_size: 64}\n",
            "{config: {obs_dim: 8, act_dim: 2, size: 1_000, batch_size: 64}, name: PPOBuffer}",
        ],
    )
    def test_styles_that_mean_the_same(self, text: str, tmp_path: Path) -> None:
        path = tmp_path / "buffer.yaml"
        path.write_bytes(text.encode())
        for place in (path, str(path)):
            buffer = PPOBuffer.instantiate_from_config(place)
            assert (buffer.obs_dim, buffer.act_dim, buffer.max_size, buffer.batch_size) == (8, 2, 1000, 64)

    plain = st.recursive(
        st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(max_size=8)),
        lambda inner: st.dictionaries(st.text(max_size=6), inner, max_size=4),
        max_leaves=8,
    )

    @settings(derandomize=True, deadline=None)
    @given(st.dictionaries(st.text(max_size=6), plain | st.lists(st.text(max_size=5) | st.integers()), min_size=1))
    def test_what_is_written_is_read_back(self, value: dict[str, Any]) -> None:
        def as_text(item: Any) -> Any:
            if isinstance(item, dict):
                return {key: as_text(inner) for key, inner in item.items()}
            if isinstance(item, list):
                return [as_text(inner) for inner in item]
            words = {"None": "null", "True": "true", "False": "false"}
            return item if isinstance(item, str) else words.get(str(item), str(item))

        try:
            text = to_yaml(value)
        except ConfigError as error:
            told = str(error)
        else:
            assert parse_yaml(text, "f").plain() == as_text(value)
            return
        assert "cannot be written" in told

    numbers = st.integers(1, 2000)
    ratios = st.floats(0, 1) | st.integers(0, 1)

    @settings(derandomize=True, deadline=None)
    @given(
        st.fixed_dictionaries(
            {"obs_dim": numbers, "act_dim": numbers, "size": numbers, "batch_size": numbers},
            optional={"gamma": ratios, "lam": ratios, "eps": st.floats(0, 1e9)},
        ),
        st.booleans(),
        st.booleans(),
        st.randoms(use_true_random=False),
    )
    def test_strictyaml_reads_the_same(
        self, folder: Path, config: dict[str, Any], flow: bool, grouped: bool, order: Any
    ) -> None:
        items = [(key, f"{value:_}" if grouped and isinstance(value, int) else value) for key, value in config.items()]
        order.shuffle(items)
        lines = [f"{key}: {value}" for key, value in items]
        theirs = strictyaml.load("\n".join(lines), PPOBuffer.schema).data
        path = folder / "buffer.yaml"
        path.write_text(f"{{{', '.join(lines)}}}" if flow else "\n".join(lines), encoding="utf-8")
        buffer = vars(PPOBuffer.instantiate_from_config(path))
        assert theirs == config
        assert {key: buffer["max_size" if key == "size" else key] for key in config} == config

    @pytest.mark.parametrize("text", ["3.5", "a", "true", "", "-", "1e3", "0x10", "[1]", "{a: 1}"])
    def test_what_strictyaml_refuses_as_a_whole_number_is_refused(self, text: str, tmp_path: Path) -> None:
        path = tmp_path / "buffer.yaml"
        path.write_text(broken := GOOD.replace("64", text), encoding="utf-8")
        with pytest.raises(strictyaml.YAMLError):
            strictyaml.load(broken, SimpleReplayBuffer.schema)
        with pytest.raises(ConfigError):
            SimpleReplayBuffer.instantiate_from_config(path)


REFUSED = {
    "tag": (GOOD + "gamma: !!float 0.9", "line 5: the tag 'tag:yaml.org,2002:float' is not allowed"),
    "python tag": ("a: !!python/object/apply:os.getcwd []", "line 1: the tag"),
    "bare tag": ("a: ! 1", "line 1: the tag '!'"),
    "tag directive": ("%TAG ! tag:x,2000:\n---\na: !y 1", "line 3: the tag 'tag:x,2000:y'"),
    "tag on a mapping": ("!!map {a: 1}", "line 1: the tag"),
    "anchor": (GOOD + "gamma: &a 0.9", "line 5: an anchor or alias is not allowed"),
    "anchor on a key": ("&a obs_dim: 1", "line 1: an anchor or alias"),
    "alias": ("a: 1\nb: *c", "line 2: an anchor or alias"),
    "many laughs": ("a: &a [1]\nb: &b [*a, *a]\nc: [*b, *b]", "line 1: an anchor or alias"),
    "key twice": (GOOD + "size: 3", "line 5: the key 'size' twice"),
    "key twice, quoted": ("{a: 1, 'a': 2}", "line 1: the key 'a' twice"),
    "tab": ("a: 1\n\tb: 2", "line 2: broken YAML, found character '\\t'"),
    "empty": ("", "the file is empty"),
    "only a comment": ("# nothing\n\n", "the file is empty"),
    "only a marker": ("--- \n", "expected a mapping"),
    "deep": ("a: " + "[" * 10_000, f"line 1: nesting deeper than {DEEPEST_NESTING}"),
    "deep blocks": ("- " * 10_000, f"line 1: nesting deeper than {DEEPEST_NESTING}"),
    "second document": (GOOD + "---\n" + GOOD, "line 5: a second document"),
    "newer YAML": ("%YAML 3.0\n---\n" + GOOD, "line 1: broken YAML, found incompatible YAML document"),
    "key that is a list": ("? [a]\n: 1", "line 1: a key that is not text"),
    "key that is a mapping": ("{{a: 1}: 2}", "line 1: a key that is not text"),
    "unclosed": ("a: [1, 2", "line 1: broken YAML"),
    "unclosed quote": ("a: 1\nb: 'x", "line 2: broken YAML, found unexpected end of stream"),
    "indentation": ("a: 1\n  b: 2\n", "line 2: broken YAML, mapping values are not allowed here"),
    "control character": ("a: 1\nb: \x07", "line 2: unprintable character '\\x07'"),
    "escaped control character": ('a: 1\n"\\e[2J": 2', "line 2: an unprintable character ('\\x1b[2J')"),
    "half a surrogate pair": ('a: "\\ud800"', "line 1: an unprintable character ('\\ud800')"),
    "list": ("- a\n- b", "line 1: expected a mapping of PPOBuffer's parameters, got a list"),
    "scalar": ("hello", "line 1: expected a mapping of PPOBuffer's parameters, got 'hello'"),
    "not a whole number": (GOOD.replace("64", "3.5"), "line 4, batch_size: expected a whole number, got '3.5'"),
    "true": (GOOD.replace("64", "true"), "line 4, batch_size: expected a whole number, got 'true'"),
    "word": (GOOD.replace("64", "many"), "line 4, batch_size: expected a whole number, got 'many'"),
    "underscores": (GOOD.replace("64", "1__0"), "line 4, batch_size: expected a whole number, got '1__0'"),
    "other digits": (GOOD.replace("64", "\u0661"), "line 4, batch_size: expected a whole number"),
    "zero": (GOOD.replace("64", "0"), "line 4, batch_size: expected a number of at least 1, got '0'"),
    "huge": (GOOD.replace("64", "9" * 30), "line 4, batch_size: expected a number of at most 9.0072e+15"),
    "longer than int reads": (GOOD.replace("64", "9" * 5000), "line 4, batch_size: expected a whole number"),
    "more than memory": (GOOD.replace("1_000", "9_000_000_000_000_000"), "a buffer of size 9000000000000000 needs"),
    "nan": (GOOD + "gamma: nan", "line 5, gamma: expected a finite number, got 'nan'"),
    "inf": (GOOD + "eps: inf", "line 5, eps: expected a finite number, got 'inf'"),
    "1e999": (GOOD + "eps: 1e999", "line 5, eps: expected a finite number, got '1e999'"),
    "YAML's inf": (GOOD + "eps: .inf", "line 5, eps: expected a number, got '.inf'"),
    "above one": (GOOD + "gamma: 1.01", "line 5, gamma: expected a number between 0 and 1, got '1.01'"),
    "null": (GOOD + "gamma: null", "line 5, gamma: expected a number, got 'null'"),
    "left out": (GOOD + "gamma:", "line 5, gamma: expected a number, got ''"),
    "nested": (GOOD + "gamma: {a: 1}", "line 5, gamma: expected a number, got a mapping"),
    "misspelt": (GOOD + "gama: 0.9", "line 5, gama: PPOBuffer has no parameter 'gama'. Did you mean 'gamma'?"),
    "unknown": (GOOD + "<<: {a: 1}", "line 5, <<: PPOBuffer has no parameter '<<'. Known: act_dim, "),
    "missing": ("obs_dim: 8", "line 1: PPOBuffer needs 'act_dim', 'size', 'batch_size'"),
    "other name": (WRAPPED.replace("PPO", "PP0"), "line 1, name: expected PPOBuffer, got 'PP0Buffer'"),
    "name that is a list": (WRAPPED.replace("PPOBuffer", "[a]"), "line 1, name: expected PPOBuffer, got a list"),
    "no config": ("name: PPOBuffer\nconfig:\n", "line 2: PPOBuffer needs 'obs_dim', 'act_dim', 'size', 'batch_size'"),
    "null config": ("name: PPOBuffer\nconfig: null", "line 2: PPOBuffer needs 'obs_dim', 'act_dim'"),
    "config that is a list": ("name: PPOBuffer\nconfig: [1]", "line 2: expected a mapping of PPOBuffer's parameters"),
    "misspelt in config": (WRAPPED + "  lamb: 0.5\n", "line 7, lamb: PPOBuffer has no parameter 'lamb'. Did you mean"),
}


class TestWhatIsRefused:
    @pytest.mark.parametrize(("text", "message"), REFUSED.values(), ids=REFUSED)
    def test_with_path_line_and_cause(self, text: str, message: str, tmp_path: Path) -> None:
        path = tmp_path / "buffer.yaml"
        path.write_bytes(text.encode("utf-8", "surrogatepass"))
        with pytest.raises(ConfigError) as caught:
            PPOBuffer.instantiate_from_config(path)
        assert isinstance(caught.value, ValueError)
        assert str(caught.value).startswith(str(path))
        assert message in str(caught.value)

    def test_everything_wrong_is_told_at_once(self, tmp_path: Path) -> None:
        path = tmp_path / "buffer.yaml"
        path.write_text("obs_dim: 0\nact_dim: x\ngamma: 3\nsiz: 4\n", encoding="utf-8")
        with pytest.raises(ConfigError) as caught:
            PPOBuffer.instantiate_from_config(path)
        lines = str(caught.value).splitlines()
        assert [line.removeprefix(str(path)).split(":")[0] for line in lines] == [
            " line 1, obs_dim",
            " line 2, act_dim",
            " line 3, gamma",
            " line 4, siz",
            " line 1",
        ]

    @pytest.mark.parametrize("data", [b"a: \xff\n", b"\xff\xfea\x00:\x00", GOOD.encode("utf-16"), b"a: \xed\xa0\x80"])
    def test_what_is_not_utf8(self, data: bytes, tmp_path: Path) -> None:
        path = tmp_path / "buffer.yaml"
        path.write_bytes(data)
        with pytest.raises(ConfigError, match="not UTF-8 text"):
            read_yaml(path)

    def test_missing_folder_and_too_large(self, tmp_path: Path) -> None:
        with pytest.raises(FileNotFoundError, match=r"nowhere\.yaml"):
            PPOBuffer.instantiate_from_config(tmp_path / "nowhere.yaml")
        with pytest.raises(ConfigError, match="cannot be read as a file"):
            PPOBuffer.instantiate_from_config(tmp_path)
        path = tmp_path / "large.yaml"
        path.write_bytes(b"#" * (LARGEST_FILE + 1))
        with pytest.raises(ConfigError, match="too large"):
            read_yaml(path)
        with pytest.raises(ConfigError, match="too large"):
            read_yaml("/dev/zero")

    @pytest.mark.parametrize("value", ["a\nb", "a\tb", "\x00", "\ud800"])
    def test_text_that_cannot_be_written(self, value: str) -> None:
        with pytest.raises(ConfigError, match="cannot be written"):
            to_yaml({"key": value})


TEMPLATES = [
    GOOD + "gamma: 0.99  # discount\n",
    "{obs_dim: 8, act_dim: 2, size: 1000, batch_size: 64, lam: 1e-1}\n",
    WRAPPED.replace("1_000", '"1000"').replace("64", "'64'"),
    "%YAML 1.2\n---\n{name: PPOBuffer, config: {obs_dim: 8, act_dim: 2, size: 10, batch_size: 64}}\n...\n",
    "? obs_dim\n: 8\nact_dim: |-\n  2\nsize: >-\n  1000\nbatch_size:\n  64\n",
]
PIECES = [
    *"[]{}:,#&*!|>'\"%@`?-\t\n\r ~0123456789.eE+_\\x",
    *("\ufeff", "\x00", "\x85", "\u2028", "\u0661", "\ud7ff", "\u00e9", "\U0001f600", "\\x", "\\uD800", "\\U0010FFFF"),
    *("<<: ", "!!int ", "!<x> ", "&a ", "*a", "? ", "- ", ": ", "---\n", "...\n", "|+2\n", ">9\n"),
    *("%YAML 1.1\n", "%YAML 99.9\n", "%TAG ! tag:x,2000:\n", "nan", "inf", "1e999", "9" * 50, "1__0", "null", "true"),
]


def mutated(rng: random.Random) -> str:
    """One of the templates after a few slips: pieces deleted, inserted, replaced, repeated, moved, lines shuffled."""
    text = rng.choice(TEMPLATES)
    for _ in range(rng.choice((1, 1, 1, 2, 3, 5, 8))):
        start = rng.randrange(len(text) + 1)
        end = start + rng.choice((1, 1, 2, 5, 20))
        other = rng.randrange(len(text) + 1)
        text = rng.choice(
            [
                text[:start] + text[end:],
                text[:start] + rng.choice(PIECES) + text[start:],
                text[:start] + rng.choice(PIECES) + text[end:],
                text[:start] + text[start:end] * 2 + text[start:],
                text[:start] + text[other : other + 8] + text[start:],
                "\n".join(rng.sample(lines := text.split("\n"), len(lines))),
            ]
        )
    return text


@pytest.mark.parametrize("bytes_too", [False, True])
def test_mutated_files_are_read_or_refused(bytes_too: bool, tmp_path: Path) -> None:
    rng, path, outcomes = random.Random(bytes_too), tmp_path / "buffer.yaml", Counter[str]()
    for _ in range(1_000 if bytes_too else 10_000):
        data = bytearray(mutated(rng).encode())
        for _ in range(rng.randrange(3) if bytes_too else 0):
            data[rng.randrange(len(data))] = rng.randrange(256)
        path.write_bytes(data)
        try:
            PPOBuffer.instantiate_from_config(path)
            outcomes["read"] += 1
        except ConfigError as error:
            outcomes["refused" if str(error).startswith(str(path)) else f"{data} is refused without its path"] += 1
    assert set(outcomes) == {"read", "refused"}
    assert outcomes["read"] > 10
    assert outcomes["refused"] > 500
