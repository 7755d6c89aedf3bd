"""What is timed: the sizes of each group's rows, full for a GPU and tiny for showing on the CPU that the program works."""

from dataclasses import dataclass, replace

# A program of f32 multiply-adds alone has so many chains of so many numbers, and in a round of its loop each chain so many links.
CHAINS, WIDTH, LINKS = 8, 1024, 8
# The operations of such a round.
ROUND = 2 * CHAINS * WIDTH * LINKS


@dataclass(frozen=True)
class Product:
    rows: int
    columns: int
    depth: int

    @property
    def title(self):
        return f"{self.rows} × {self.columns} × {self.depth}"

    @property
    def operations(self):
        return 2 * self.rows * self.columns * self.depth


@dataclass(frozen=True)
class Attention:
    batch: int
    heads: int
    queries: int
    keys: int
    size: int
    causal: bool

    @property
    def title(self):
        sizes = f"{self.batch} × {self.heads}, {self.queries} × {self.keys}, {self.size}"
        return sizes + (", causal" if self.causal else "")


@dataclass(frozen=True)
class Net:
    """A model with weights of `models/` or from PyTorch, and the sizes of its dimensions besides the batch."""

    name: str
    batch: int
    dims: dict

    @property
    def title(self):
        return f"{self.name}, {self.batch}"


@dataclass(frozen=True)
class Decoder:
    """A model of Llama's shape: its first rows (prefill), or one more behind `past` others in caches of `capacity` rows."""

    shape: str
    layers: int
    hidden: int
    inner: int
    heads: int
    key_heads: int
    vocabulary: int
    batch: int = 1
    length: int = 512
    past: int = 0
    capacity: int = 0

    @property
    def size(self):
        return self.hidden // self.heads

    @property
    def title(self):
        what = f"one token behind {self.past}" if self.past else f"{self.length} tokens"
        return f"{self.shape}, {self.layers} layers, {what}, {self.batch}"

    @property
    def stem(self):
        """Of the file of its graph; those of equal weights share a file of weights."""
        what = f"past{self.past}" if self.past else f"first{self.length}"
        return f"{self.weights}_{what}_b{self.batch}"

    @property
    def weights(self):
        return f"llama_{self.shape.replace(' ', '')}_{self.layers}"

    @property
    def read(self):
        """Elements that a step has to read: matrices and caches, and of the embedding one row, which does not count."""
        keys = self.key_heads * self.size
        layer = self.hidden * (2 * self.hidden + 2 * keys + 3 * self.inner)
        return self.layers * (layer + 2 * self.batch * self.past * keys) + self.hidden * self.vocabulary


@dataclass(frozen=True)
class Sizes:
    """All rows of a run."""

    nets: tuple
    products: tuple
    exact: tuple
    steps: tuple
    attentions: tuple
    decoders: tuple
    # Bytes that the copy reads and writes, and rounds of the loop of multiply-adds alone.
    copied: int
    chain: int


BATCHES = (1, 32)
IMAGE = {"height": 224, "width": 224}
NETS = (("resnet50", IMAGE), ("vit_b_16", {}), ("distilbert_full", {"seq": 128}), ("bert", {}))
PRODUCTS = (
    Product(4096, 4096, 4096),
    Product(2048, 5120, 5120),
    Product(2048, 11008, 4096),
    Product(1024, 4096, 4096),
    Product(512, 4096, 4096),
    Product(256, 4096, 4096),
    Product(128, 4096, 4096),
    Product(4096, 768, 3072),
    Product(4096, 3072, 768),
    Product(6304, 768, 3072),
    Product(6304, 3072, 768),
    Product(4096, 1024, 1024),
)
# A decoder's step, as Llama of 7 B and of 1 B has them: what is read is the right matrix.
STEPS = (
    Product(1, 4096, 4096),
    Product(1, 11008, 4096),
    Product(1, 4096, 11008),
    Product(1, 32000, 4096),
    Product(1, 2048, 2048),
    Product(1, 5632, 2048),
)
ATTENTIONS = (
    Attention(32, 12, 128, 128, 64, False),
    Attention(32, 12, 197, 197, 64, False),
    Attention(4, 16, 2048, 2048, 64, True),
    Attention(1, 32, 4096, 4096, 128, True),
    Attention(8, 32, 1, 4096, 128, False),
)
SEVEN = Decoder("7 B", 4, 4096, 11008, 32, 32, 32000)
ONE = Decoder("1 B", 22, 2048, 5632, 32, 4, 32000)


def stages(decoder, batches, past, capacity):
    """Its first rows and a step, at each batch."""
    first = [replace(decoder, batch=batch) for batch in batches]
    return first + [replace(row, length=1, past=past, capacity=capacity) for row in first]


def full(layers):
    """Of so many layers of 7 B: a token's time is near proportional to them, and all 32 are 26 GB of f32 weights in a file."""
    seven = replace(SEVEN, layers=layers)
    return Sizes(
        nets=tuple(Net(name, batch, dims) for name, dims in NETS for batch in BATCHES),
        products=PRODUCTS,
        exact=(PRODUCTS[0], PRODUCTS[1], PRODUCTS[3], PRODUCTS[4], PRODUCTS[7]),
        steps=STEPS,
        attentions=ATTENTIONS,
        decoders=tuple(row for shape in (seven, ONE) for row in stages(shape, BATCHES, 512, 640)),
        copied=1 << 30,
        chain=1 << 11,
    )


def tiny():
    decoder = Decoder("tiny", 2, 64, 96, 4, 2, 50, length=8)
    return Sizes(
        nets=tuple(Net("resnet18", batch, {"height": 32, "width": 32}) for batch in (1, 2)),
        products=(Product(64, 48, 32), Product(16, 64, 80)),
        exact=(Product(64, 48, 32),),
        steps=(Product(1, 64, 96),),
        attentions=(Attention(2, 2, 16, 16, 16, False), Attention(1, 2, 24, 24, 16, True)),
        decoders=tuple(stages(decoder, (1, 2), 4, 8)),
        copied=1 << 20,
        chain=4,
    )
