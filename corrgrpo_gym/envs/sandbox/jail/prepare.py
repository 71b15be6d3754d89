"""What is done once for all programs with one prelude, before their processes are forked.

Importing names that are loaded already changes nothing but the module that they go to. Yet in a forked process it
writes to each object's reference count, and so copies the memory around it: for the usual dozen of star imports, more
than all else that comes before a program. So the imports at the beginning of a prelude run here, and processes start
with the module that they made. The rest of it, which could change more, runs in each process.

Runs inside the jail: standard library only.
"""

import ast
import builtins
import sys
import types


def blank() -> types.ModuleType:
    """Make the module that a program runs in.

    It is named as a script's, so that what looks up its own module finds the program and not the harness. Its builtins
    are its own, too: what a program patches there is not what answers are encoded with.
    """
    module = types.ModuleType("__main__")
    own = types.ModuleType("builtins")
    own.__dict__.update(builtins.__dict__, exit=sys.exit, quit=sys.exit)  # the module site would give them
    module.__dict__["__builtins__"] = own
    return module


def prepare(prelude: str) -> tuple[types.ModuleType, types.CodeType]:
    """Return a module in which the imports at the beginning of a prelude have run, and the code of the rest."""
    module = blank()
    tree = ast.parse(prelude)
    count = 0
    while count < len(tree.body) and _only_binds(tree.body[count]):
        count += 1
    if any(isinstance(node, ast.ImportFrom) and node.module == "__future__" for node in tree.body):
        count = 0
    begin = ast.Module(tree.body[:count], [])
    exec(compile(begin, "<prelude>", "exec", 0, True, 0), module.__dict__)
    tree.body = tree.body[count:]
    return module, compile(tree, "<prelude>", "exec", 0, True, 0)


def _only_binds(node: ast.stmt) -> bool:
    """Whether a statement imports nothing that is not loaded."""
    if isinstance(node, ast.Import):
        return all(alias.name in sys.modules for alias in node.names)
    if not isinstance(node, ast.ImportFrom) or node.level or node.module not in sys.modules:
        return False
    module = sys.modules[node.module]
    return all(alias.name == "*" or hasattr(module, alias.name) for alias in node.names)
