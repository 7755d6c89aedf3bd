"""Tables of what is in the machine code of tile programs, for the tools that compile them."""

import os


def compare(path, columns, rows):
    """Whether the table of (program, architecture, counts by column) is as committed; writes it where RLX_WRITE_DOCS is set."""
    lines = ["\t".join(["program", "architecture", *columns])]
    for name, architecture, counts in sorted(rows, key=lambda row: row[:2]):
        lines.append("\t".join([name, architecture, *(str(counts[c]) for c in columns)]))
    text = "\n".join(lines) + "\n"
    if os.environ.get("RLX_WRITE_DOCS"):
        with open(path, "w", encoding="utf-8") as f:
            f.write(text)
        return True
    with open(path, encoding="utf-8") as f:
        committed = f.read()
    if text == committed:
        return True
    print(f"{path} is out of date: RLX_WRITE_DOCS=1 writes it again")
    old, new = set(committed.splitlines()), set(lines)
    for line in sorted(old ^ new):
        print(("- " if line in old else "+ ") + line)
    return False


def finish(table, columns, rows, files, compiled, failures):
    """Compares with a table, if there is one, says how much was compiled, and gives the exit status."""
    if table and rows:
        failures += not compare(table, columns, rows)
    elif table:
        print("no tile programs")
        failures += 1
    print(f"{files} files, {compiled} times compiled, {failures} failed")
    return 1 if failures or not files else 0
