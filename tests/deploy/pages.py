"""Commands as pages print them, and checks of their names and flags that run none of them."""
import functools
import re
import shlex
import subprocess
import textwrap

from relay import BIN, ROOT


def ends(text):
    """True if a command is whole: no continuation, open quote or open here-document."""
    here = re.search(r"<<'(\w+)'\n", text + "\n")
    if text.endswith("\\") or (here and not text.endswith(f"\n{here[1]}")):
        return False
    try:
        return here is not None or shlex.split(text, comments=True) is not None
    except ValueError:
        return False


def commands(page):
    """(line, text) of those of its code blocks: fenced ones, and the indented ones behind an empty line."""
    blocks = r"^```\w*\n((?:.*\n)*?)^```|(?<=\n\n)((?:    .*\n|\n(?=    ))+)"
    for block in re.finditer(blocks, (ROOT / page).read_text(), re.MULTILINE):
        first = block.string.count("\n", 0, block.start(1 if block[1] else 2)) + 1
        text = block[1] or textwrap.dedent(block[2])
        if re.match(r"import |{|canonical root|model = ", text):
            yield first, text
            continue
        begun = []
        for number, line in enumerate(text.splitlines(), first):
            begun.append(line)
            whole = "\n".join(begun)
            if ends(whole):
                yield number - len(begun) + 1, whole
                begun = []
        if begun:
            yield first, "\n".join(begun)


@functools.cache
def help_of(*words, every="--help-all"):
    return subprocess.run([BIN / words[0], *words[1:], every], capture_output=True, text=True, check=True).stdout


def default_port(flag, *words):
    return int(re.search(rf"^  .*{flag} ADDR .*\(default [\d.]+:(\d+)\)", help_of(*words), re.MULTILINE)[1])


def program(words):
    """The command whose help has the flags: `baton model inspect` of `baton model inspect DIR`. A subcommand that help does not list fails."""
    known = [words[0].rsplit("/", 1)[-1]]
    for word in words[1:]:
        below = re.findall(r"^  ([a-z-]+) ", help_of(*known, every="--help").partition("Subcommands:")[2], re.MULTILINE)
        if word not in below:
            assert not below or known != ["baton"] or word.startswith("-"), f"`baton {word}` is no command"
            break
        known.append(word)
    return known


def check_flags(text):
    """Each flag stands in the command's help, and where that lists what a flag may be, so does its value."""
    words = shlex.split(text, comments=True)
    known = program(words)
    for word, value in zip(words, words[1:] + [""]):
        if word.startswith("--"):
            flag, _, given = word.partition("=")
            found = re.search(rf"^  (?:-\w,)?{flag}(?: (\S+))?(?: |$)", help_of(*known), re.MULTILINE)
            assert found, f"`{' '.join(known)} --help` has no {flag}"
            choices, value = (found[1] or "").split("|"), given or value
            if len(choices) > 1 and value and not value.isupper():
                assert set(value.split("|")) <= set(choices), f"{flag} is one of {choices}"


def check_named(text, *sources):
    """Each flag stands in one of these texts."""
    for flag in re.findall(r"(?<=[\s(])--[a-z][a-z_-]*", text):
        assert flag.startswith("--gtest_") or any(flag in source for source in sources), f"{text.split()[0]} knows no {flag}"


def check_script(text):
    words = text.replace("gpu-pack/run", "tests/gpu/run.py").removeprefix("python3 ").split()
    check_named(text, (ROOT / words[0]).read_text())


@functools.cache
def cmake():
    """Every CMakeLists.txt of the source."""
    rooms = [path for path in ROOT.iterdir() if path.is_dir() and path.name != "build"]
    return "\n".join(path.read_text() for room in rooms for path in room.rglob("CMakeLists.txt"))


def check_target(name):
    made = rf"(?:add_executable|baton_\w+|set)\({name}(?:_DEPS)?\s|foreach\(name .*\b{name}\b"
    assert re.search(made, cmake()), f"no CMakeLists.txt makes {name}"
