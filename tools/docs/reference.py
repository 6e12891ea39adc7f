"""Writes the generated pages of docs/reference.

usage: python3 tools/docs/reference.py [--regroup PROGRAM] [--check]     --check: says which are not
current
options.md comes from `regroup --generate man` (the table of options), commands.md from `regroup
COMMAND
--help`, cpp.md from the comments of the public headers, python.md from docstrings, messages.md from
the
schema of control messages.
"""

import argparse
import ast
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "docs/reference"
INTERFACE = ROOT / "include/regroup"
HEADERS = (  # of it, in the order of the page
    "session.h", "state.h", "communicator.h", "operation.h", "mpi.h", "point_to_point.h",
    "optimizer.h", "checkpoint.h", "ps.h", "status.h", "types.h",
)  # fmt: skip
SCHEMAS = {
    "proto/wire.fbs": "Members, agents, coordinator and commands",
    "launcher/agent/wire.fbs": "Controller and agents",
    "membership/catchup/transfer.fbs": "Agents, in a state transfer",
    "launcher/pmi/wire.fbs": "An agent and regroup-pmi",
}
COMMANDS = (
    "status", "top", "resize", "notice", "kill-member", "join", "allocation", "doctor",
    "checkpoint", "ledger", "bench", "place", "topo",
)  # fmt: skip
MODULES = (
    "session",
    "torch",
    "checkpoint",
    "optim",
    "torch_checkpoint",
    "keras_checkpoint",
    "ps/__init__",
    "ps/torch",
    "ps/tensorflow",
    "_errors",
)
# of _native.pyi
NATIVE = ("WorldInfo", "Communicator", "Checkpoint", "SaveCounts", "default_fingerprint")


def page(title: str, source: str, about: str, body: str) -> str:
    about = textwrap.fill(about, 110, break_long_words=False, break_on_hyphens=False)
    note = f"<!-- tools/docs/reference.py makes this page of {source}. -->\n"
    return f"# {title}\n\n{about}\n\n{body.rstrip()}\n\n{note}"


def cell(text: str) -> str:
    return text.replace("|", "\\|")


# --- options, from the manual page


def options(manual: str) -> str:
    """The section OPTIONS of a page in the language of man(7)."""
    text = manual.partition(".SH OPTIONS\n")[2].partition("\n.SH ")[0]
    text = re.sub(r"\\f[BIR]", "", text.replace("\\-", "-").replace("\\&", "").replace("\\e", "\\"))
    body = ""
    for section in text.split(".SS ")[1:]:
        title, _, entries = section.partition("\n")
        body += f"## {title}\n| option | what it does |\n|---|---|\n"
        for entry in entries.split(".TP\n")[1:]:
            names, _, words = entry.strip().partition("\n")
            body += f"| `{cell(names)}` | {cell(' '.join(words.split()))} |\n"
        body += "\n"
    about = (
        "Options of `regroup [OPTIONS] PROGRAM`, in all their spellings; `regroup --help OPTION` "
        "prints one."
        " Options may be written with one or two dashes, and with `=` or a blank before the value."
    )
    return page("Options", "the table of options (`regroup --generate man`)", about, body)


def printed(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout


def commands(program: str) -> str:
    body = ""
    for command in COMMANDS:
        body += f"## {command}\n```\n{printed(program, command, '--help').rstrip()}\n```\n\n"
    return page(
        "Commands", "`regroup COMMAND --help`", "What `regroup COMMAND --help` prints.", body
    )


# --- C++, from the headers


def first_sentence(comment: str) -> str:
    comment = " ".join(comment.split())
    match = re.match(r"(.+?[.])(?:\s|$)", comment)
    return match[1] if match else comment


def comment_of(lines: list[str]) -> str:
    return " ".join(line.strip().removeprefix("//").strip() for line in lines)


def declarations(text: str) -> Iterator[tuple[str, str]]:
    """Name and comment of each class, enumeration and function of a header, methods as
    Class::method."""
    comment: list[str] = []
    scopes: list[tuple[str, bool, int]] = []  # name, public, depth of braces within
    depth, statement = 0, ""
    for line in text.split("\n"):
        code, _, trailing = line.partition("//")
        code = code.strip()
        if not code:
            if trailing and not statement:
                comment.append(line)
            elif not line.strip():
                comment = []
            continue
        if code.startswith(("#", "namespace", "}  // namespace")) or code == "}":
            depth -= code == "}" and depth > 0
            if scopes and depth < scopes[-1][2]:
                scopes.pop()
            comment = []
            continue
        if code in ("public:", "private:", "protected:"):
            if scopes and depth == scopes[-1][2]:
                scopes[-1] = (scopes[-1][0], code == "public:", scopes[-1][2])
            comment = []
            continue
        level = scopes[-1][2] if scopes else 0
        if depth == level:
            statement += " " + code
            complete = code.endswith((";", "{", "}")) and statement.count("(") == statement.count(
                ")"
            )
            if complete:
                said = comment_of(comment) or trailing.strip()
                visible = all(public for _, public, _ in scopes)
                opens = statement.count("{") > statement.count("}")
                kind = re.match(
                    r"\s*(?:template <[^>]*>\s*)?(class|struct|enum "
                    r"class)\s+(?:\[\[\w+\]\]\s+)?(\w+)",
                    statement,
                )
                if kind and (opens or "{" in statement):
                    name = "::".join([*(scope[0] for scope in scopes), kind[2]])
                    if visible:
                        yield name, said
                    if opens and kind[1] != "enum class":
                        scopes.append((kind[2], kind[1] == "struct", depth + 1))
                elif (
                    not kind
                    and visible
                    and (said or not re.search(r"\)( const)? override\b", statement))
                    and (name := function_of(statement, [scope[0] for scope in scopes]))
                ):
                    yield "::".join([*(scope[0] for scope in scopes), name]), said
                statement, comment = "", []
        depth += code.count("{") - code.count("}")
        while scopes and depth < scopes[-1][2]:
            scopes.pop()
            comment = []


def function_of(statement: str, classes: list[str]) -> str | None:
    """The name of a declared function; None: a field, a constructor, an operator, a using."""
    head = re.sub(r"\[\[\w+\]\]|\"[^\"]*\"", "", statement).partition("(")[0].strip()
    if (
        "(" not in statement
        or " " not in head
        or re.match(r"(using|typedef|friend|static_assert|return)\b", head)
    ):
        return None
    name = head.split()[-1].lstrip("*&")
    if (
        not re.fullmatch(r"\w+", name)
        or "= delete" in statement
        or "= default" in statement
        or "operator" in head
    ):
        return None
    is_field = classes and re.search(r"std::function<|=", head)
    return None if is_field or name in classes[-1:] else name


def cpp() -> str:
    body = ""
    for header in HEADERS:
        text = (INTERFACE / header).read_text()
        opening = re.match(r"(?://[^\n]*\n)+", text)[0]
        lines = [line.removeprefix("//").removeprefix(" ") for line in opening.rstrip().split("\n")]
        prose = "\n".join(lines)
        before, dots, example = prose.partition("\n\n  ")
        before = textwrap.fill(" ".join(before.split()), 110, break_on_hyphens=False)
        body += f"## `regroup/{header}`\n{before}\n"
        if dots:
            body += f"```cpp\n{textwrap.dedent('  ' + example).rstrip()}\n```\n"
        rows = [
            f"| `{name}` | {cell(first_sentence(said))} |"
            for name, said in merged(declarations(text))
        ]
        if rows:
            body += (
                "\n| name | contract, its first sentence |\n|---|---|\n" + "\n".join(rows) + "\n"
            )
        body += "\n"
    about = (
        "The headers that a C++ program includes, and what they declare. The whole contract stands "
        "in the"
        " header, above each declaration: result, units, ownership, errors, threads, blocking. Link"
        " `regroup::elastic` (`find_package(Regroup)`) or use `pkg-config regroup`. An example is"
        " `examples/cpp/digits.cc`."
    )
    return page("C++ API", "the public headers", about, body)


def merged(found: Iterator[tuple[str, str]]) -> list[tuple[str, str]]:
    """Overloads once, by the first that has a comment."""
    out: dict[str, str] = {}
    for name, said in found:
        out[name] = out.get(name) or said
    return list(out.items())


# --- Python, from docstrings


def prose_of(docstring: str | None, lists: bool = True) -> str:
    """Paragraphs as they are; lines "name: what" become a list."""
    if not docstring:
        return ""
    lines = []
    for line in docstring.split("\n"):
        if lists and re.match(r"[a-z_]+: ", line):
            line = re.sub(r"(?:^|  )([a-z_]+): ", r"\n- `\1`: ", line).removeprefix("\n")
            if lines and lines[-1] and not lines[-1].startswith(("-", "  ")):
                lines.append("")
        lines += line.split("\n")
    return "\n".join(lines).rstrip() + "\n\n"


def signature(node: ast.FunctionDef, of: str = "") -> str:
    arguments = ast.unparse(node.args)
    if of:
        arguments = re.sub(r"^(self|cls)(, )?", "", arguments)
    returns = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    name = of if node.name == "__init__" else f"{of}.{node.name}" if of else node.name
    return f"{name}({arguments}){'' if node.name == '__init__' else returns}"


def is_property(node: ast.FunctionDef) -> bool:
    return any(ast.unparse(each).endswith("property") for each in node.decorator_list)


def public(nodes: list[ast.stmt]) -> list[ast.stmt]:
    kinds = (ast.FunctionDef, ast.ClassDef)
    return [n for n in nodes if isinstance(n, kinds) and not n.name.startswith("_")]


def of_class(node: ast.ClassDef, module: str) -> str:
    init = next(
        (n for n in node.body if isinstance(n, ast.FunctionDef) and n.name == "__init__"), None
    )
    bases = ", ".join(ast.unparse(base) for base in node.bases)
    made_by_users = init and all(arg.arg != "native" for arg in init.args.args)
    head = (
        signature(init, node.name)
        if made_by_users
        else f"class {node.name}" + (f"({bases})" if bases else "")
    )
    out = f"### `{module}.{node.name}`\n```python\n{wrapped(head)}\n```\n" + prose_of(
        ast.get_docstring(node)
    )
    if made_by_users:
        out += prose_of(ast.get_docstring(init))
    rows = []
    # one without a docstring implements an interface described elsewhere
    for method in public(node.body):
        if isinstance(method, ast.FunctionDef) and ast.get_docstring(method):
            returns = f": {ast.unparse(method.returns)}" if method.returns else ""
            called = signature(method, node.name).removeprefix(f"{node.name}.")
            name = method.name + returns if is_property(method) else called
            said = " ".join(ast.get_docstring(method).split())
            rows.append(f"| `{cell(name)}` | {cell(said)} |")
    return out + ("| member | |\n|---|---|\n" + "\n".join(rows) + "\n\n" if rows else "")


def wrapped(head: str) -> str:
    """A signature, an argument a line where it is long."""
    if len(head) <= 100:
        return head
    name, _, rest = head.partition("(")
    arguments, _, end = rest.rpartition(")")
    parts = re.split(r", (?![^\[\](]*[\])])", arguments)
    return f"{name}(\n    " + ",\n    ".join(parts) + f",\n){end}"


def of_function(node: ast.FunctionDef, module: str) -> str:
    return f"### `{module}.{node.name}`\n```python\n{wrapped(signature(node))}\n```\n" + prose_of(
        ast.get_docstring(node)
    )


def entries(nodes: list[ast.stmt], module: str) -> str:
    return "".join(
        of_class(node, module) if isinstance(node, ast.ClassDef) else of_function(node, module)
        for node in nodes
    )


def python() -> str:
    package = ROOT / "python/regroup"
    body = ""
    for file in MODULES:
        tree = ast.parse((package / f"{file}.py").read_text())
        name = file.removesuffix("/__init__").replace("/", ".")
        title = {"session": "regroup", "_errors": "Exceptions"}.get(file, f"regroup.{name}")
        nodes = [node for node in public(tree.body) if node.name != "Revoked"]
        if file in ("session", "_errors"):  # their functions are the package's own
            nodes = [node for node in nodes if isinstance(node, ast.ClassDef)]
        module = "regroup" if file in ("session", "_errors") else title
        body += (
            f"## {title}\n{prose_of(ast.get_docstring(tree), lists=False)}{entries(nodes, module)}"
        )
    native = ast.parse((package / "_native.pyi").read_text())
    body += "## From the native module\n"
    body += entries([node for node in public(native.body) if node.name in NATIVE], "regroup")
    about = "Classes and functions of the package `regroup`, from their docstrings."
    return page("Python API", "the docstrings of python/regroup", about, body)


# --- control messages, from the schema


def messages_of(schema: str) -> str:
    """A table for each section of a schema, of the tables that its union names: those are
    messages."""
    text = (ROOT / schema).read_text()
    union = re.search(r"^union \w+ \{([^}]*)\}", text, re.M)[1]
    bodies = set(re.findall(r"\w+", re.sub(r"//[^\n]*", "", union)))
    body = ""
    for number, section in enumerate(re.split(r"^// --- ", text, flags=re.M)):
        title = (
            section.partition("\n")[0] if number else ""
        )  # before the first one stands the head of the file
        rows = []
        for table in re.finditer(r"^table (\w+) \{([^}]*)\}(?:[ ]*// ([^\n]*))?", section, re.M):
            if table[1] not in bodies:
                continue
            fields = re.sub(r"//[^\n]*", "", table[2])
            names = ", ".join(f.strip() for f in fields.split(";") if f.strip())
            inside = re.match(r"\s*// ([^\n]*)", table[2])
            said = table[3] or (inside[1] if inside else "")
            rows.append(f"| `{table[1]}` | {cell(names)} | {cell(said)} |")
        if rows:
            body += f"### {title}\n" if title else ""
            body += "| message | fields | |\n|---|---|---|\n" + "\n".join(rows) + "\n\n"
    return body


def messages() -> str:
    body = "".join(
        f"## {title}: `{schema}`\n{messages_of(schema)}" for schema, title in SCHEMAS.items()
    )
    about = (
        "Messages between the processes of a job. How they travel, and what is refused: [the wire"
        " format](formats/wire.md); what keeps a late one from being taken: "
        "[fences](../design/fences.md)."
    )
    return page("Control messages", "the schemas (.fbs)", about, body)


def files(program: str | None) -> dict[str, str]:
    """By name; without those that `program` prints if there is none."""
    made = {"cpp.md": cpp(), "python.md": python(), "messages.md": messages()}
    if program:
        made |= {
            "options.md": options(printed(program, "--generate", "man")),
            "commands.md": commands(program),
        }
    return made


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--regroup", metavar="PROGRAM", default=str(ROOT / "build/bin/regroup"))
    parser.add_argument("--check", action="store_true")
    arguments = parser.parse_args()
    stale = []
    for name, text in files(arguments.regroup).items():
        path = FOLDER / name
        if path.exists() and path.read_text() == text:
            continue
        stale.append(f"{path.relative_to(ROOT)}: not current; run python3 tools/docs/reference.py")
        if not arguments.check:
            path.write_text(text)
            print(path.relative_to(ROOT))
    if stale and arguments.check:
        sys.exit("\n".join(stale))


if __name__ == "__main__":
    main()
