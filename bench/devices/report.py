"""Tables of what was timed, with the goals beside."""

import math
from statistics import median

# What is asked of RLX: a share of the best peer's speed, of what the machine reaches, or a factor against compiled PyTorch.
OWN_PRODUCTS, ATTENTION, EXACT, VULKAN = 0.90, 0.85, 0.80, 0.85
COMPILED = {1: 1.2, 32: 1.05}
BANDWIDTH = {"7 B": 0.80, "1 B": 0.65}


class Found:
    """Times in milliseconds of a group by row and column, one for each round."""

    def __init__(self, group):
        self.group, self.times, self.absent, self.limits = group, {}, {}, {}

    def add(self, times):
        for row, column, ms in times:
            of = self.limits if row == "machine" else self.times
            of.setdefault(column if row == "machine" else (row, column), []).append(ms)

    def miss(self, column, rows, why):
        for row in rows:
            self.absent.setdefault(column, {})[row] = why

    def time(self, row, column):
        """Of kernels the shortest round, which nothing disturbed, of models the median."""
        times = self.times.get((row, column))
        return (min if self.group.kernels else median)(times) if times else None

    def best(self, row, columns):
        times = [self.time(row, column) for column in columns]
        return min((t for t in times if t), default=None)

    def limit(self, column):
        times = self.limits.get(column)
        return min(times) if times else None


def share(above, below):
    return above / below if above and below else None


def mean(values):
    known = [v for v in values if v]
    return math.exp(sum(map(math.log, known)) / len(known)) if known else None


def judged(found, value, goal):
    """Three cells: what was reached, the goal, and whether it is met, which tiny sizes do not tell."""
    if not value:
        return ["–", number(goal, 2), "not measured"]
    verdict = "met" if goal and value >= goal else "not met"
    return [f"{value:.2f}", number(goal, 2), verdict if goal and found.group.judges else "–"]


def table(head, lines):
    cells = [head, ["---"] * len(head), *lines]
    return ["| " + " | ".join(line) + " |" for line in cells]


def number(value, digits):
    return f"{value:.{digits}f}" if value else "–"


def reach(found, goals):
    """A record of each row's goal: `goals` gives what was reached and what is asked for."""
    rows = []
    for row in found.group.rows:
        value, goal = goals(found, row)
        rows.append({"row": row.title, "reached": value, "goal": goal})
    return rows


def reached_table(found, what, goals, unit=1.0, digits=3):
    """Times of all columns, in milliseconds by `unit`, then what was reached."""
    columns = found.group.columns
    lines = []
    for row, judgement in zip(found.group.rows, reach(found, goals)):
        times = [found.time(row.title, column) for column in columns]
        cells = [number(t and t * unit, digits) for t in times]
        lines.append([row.title, *cells, *judged(found, judgement["reached"], judgement["goal"])])
    return table([found.group.rows_are, *columns, what, "goal", ""], lines)


def absences(found):
    """One line for each column that is missing or lacks rows, with the reason."""
    lines = []
    for column, rows in found.absent.items():
        for why in dict.fromkeys(rows.values()):
            of = [row for row, reason in rows.items() if reason == why]
            which = "" if len(of) == len(found.group.rows) or of == ["all"] else f" ({'; '.join(of)})"
            lines.append(f"- {column} is absent{which}: {why}")
    return lines


def compiled_goals(found, row):
    return share(found.time(row.title, "PyTorch compiled"), found.time(row.title, "RLX")), COMPILED.get(row.batch)


def product_goals(found, row):
    libraries = found.best(row.title, ("PyTorch", "RLX, library"))
    return share(libraries, found.time(row.title, "RLX, own")), OWN_PRODUCTS


def products_mean(found):
    of = mean([judgement["reached"] for judgement in reach(found, product_goals)])
    reached, goal, verdict = judged(found, of, OWN_PRODUCTS)
    return ["", f"Geometric mean: {reached}, goal {goal}: {verdict}"]


def attention_goals(found, row):
    peers = found.best(row.title, ("PyTorch", "cuDNN", "FlashAttention"))
    return share(peers, found.time(row.title, "RLX")), ATTENTION


def exact_goals(found, row):
    """Operations in a second beside those of multiply-adds alone."""
    own, alone = found.time(row.title, "RLX, own"), found.limit("multiply-adds")
    rate = alone and found.group.chain_operations / alone
    return share(own and row.operations / own, rate), EXACT


def bandwidth(found):
    """Bytes in a millisecond that a copy moves, those that it reads and those that it writes."""
    copy = found.limit("copy")
    return copy and 2 * found.group.copied / copy


def step_goals(found, row):
    own = found.time(row.title, "RLX")
    shape = "1 B" if row.depth == 2048 else "7 B"
    return share(own and 2 * row.columns * row.depth / own, bandwidth(found)), BANDWIDTH[shape]


def decode_goals(found, row):
    own = found.time(row.title, "RLX")
    return share(own and 2 * row.read / own, bandwidth(found)), BANDWIDTH.get(row.shape)


def limit_lines(found):
    lines, moved, chain = [], bandwidth(found), found.limit("multiply-adds")
    if moved:
        lines.append(f"- a copy moves {moved * 1e-6:.0f} GB/s (read and written)")
    if chain:
        lines.append(f"- f32 multiply-adds alone reach {found.group.chain_operations / chain * 1e-9:.3g} TFLOP/s")
    return lines


def decoding(found):
    """A record of what the steps of decoders read at batch 1, beside a copy."""
    made = []
    for row in found.group.rows:
        if getattr(row, "past", 0) and row.batch == 1:
            value, goal = decode_goals(found, row)
            made.append({"row": row.title, "bytes": 2 * row.read, "reached": value, "goal": goal})
    return made


def decode_table(found):
    lines = []
    for of in decoding(found):
        times = [found.time(of["row"], column) for column in ("RLX", "PyTorch compiled")]
        rates = [number(t and of["bytes"] / t * 1e-6, 0) for t in times]
        lines.append([of["row"], *rates, *judged(found, of["reached"], of["goal"])])
    head = ["decoder", "RLX, GB/s", "PyTorch compiled, GB/s", "RLX / copy", "goal", ""]
    return ["", *table(head, lines)] if lines else []
