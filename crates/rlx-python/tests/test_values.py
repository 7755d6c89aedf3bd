"""Values that are no plain tensors: strings, sequences, optionals, maps; and images that a model decodes."""

import pathlib

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
from onnx import TensorProto, helper  # noqa: E402

import rlx  # noqa: E402

CLASSICAL = pathlib.Path(__file__).parents[2] / "rlx-onnx/tests/classical"


def model(nodes, inputs, outputs, domains=()):
    graph = helper.make_graph(nodes, "values", inputs, outputs)
    opsets = [helper.make_opsetid("", 21), *(helper.make_opsetid(d, v) for d, v in domains)]
    return rlx.load(helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString())


def test_a_classifier_of_numbers_and_names_gives_labels_and_dicts():
    table = rlx.load(CLASSICAL / "table_of_numbers_and_strings.onnx")
    inputs = {"n": np.float32([[5.1, 3.5], [6.2, 2.9]]), "c": np.array([["red"], ["no colour"]], dtype=object)}
    found = table.run(inputs)
    assert found["output_label"].dtype == object and found["output_label"][0] == "setosa"
    assert sorted(found["output_probability"][0]) == ["setosa", "versicolor", "virginica"]
    assert sum(found["output_probability"][1].values()) == pytest.approx(1)
    again = table.run([inputs["n"], inputs["c"].astype(str)], ["output_label"])
    assert list(again) == ["output_label"] and list(again["output_label"]) == list(found["output_label"])
    with pytest.raises(ValueError, match="copy"):
        table.run(inputs, copy=False)


def test_strings_that_are_split_decide_shapes():
    strings = lambda name, dims: helper.make_tensor_value_info(name, TensorProto.STRING, dims)  # noqa: E731
    counts = helper.make_tensor_value_info("n", TensorProto.INT64, ["rows"])
    split = model([helper.make_node("StringSplit", ["x"], ["y", "n"], delimiter=",")], [strings("x", ["rows"])], [strings("y", None), counts])
    for text, parts in [(["a,b", "c"], [["a", "b"], ["c", ""]]), (["d"], [["d"]])]:
        y, n = split(np.array(text, dtype=object))
        assert y.tolist() == parts and n.tolist() == [len(t.split(",")) for t in text]


def test_sequences_are_lists_and_empty_optionals_are_none():
    sequence = helper.make_tensor_sequence_value_info("xs", TensorProto.FLOAT, None)
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    joined = model([helper.make_node("ConcatFromSequence", ["xs"], ["y"], axis=0)], [sequence], [y])
    for count in (1, 3):
        xs = [np.full([i + 1, 2], i, np.float32) for i in range(count)]
        np.testing.assert_array_equal(joined.run({"xs": xs})["y"], np.concatenate(xs))
    made = model(
        [helper.make_node("SequenceConstruct", ["a", "b"], ["s"])],
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, [2]) for n in "ab"],
        [helper.make_tensor_sequence_value_info("s", TensorProto.FLOAT, None)],
    )
    s = made.run([np.float32([1, 2]), np.float32([3, 4])])["s"]
    assert [e.tolist() for e in s] == [[1, 2], [3, 4]]
    tensor = helper.make_tensor_type_proto(TensorProto.FLOAT, [2])
    optional = helper.make_value_info("o", helper.make_optional_type_proto(tensor))
    has = model(
        [helper.make_node("OptionalHasElement", ["o"], ["h"])],
        [optional],
        [helper.make_tensor_value_info("h", TensorProto.BOOL, [])],
    )
    assert not has.run({"o": None})["h"] and has.run({"o": np.float32([1, 2])})["h"]


def test_images_are_decoded_by_the_model():
    header = b"P6\n2 1\n255\n"
    pixels = np.uint8([[[1, 2, 3], [250, 0, 9]]])
    file = np.frombuffer(header + pixels.tobytes(), np.uint8)
    for form, want in [("RGB", pixels), ("BGR", pixels[..., ::-1])]:
        decoder = model(
            [helper.make_node("ImageDecoder", ["x"], ["y"], pixel_format=form)],
            [helper.make_tensor_value_info("x", TensorProto.UINT8, [None])],
            [helper.make_tensor_value_info("y", TensorProto.UINT8, [None, None, 3])],
        )
        np.testing.assert_array_equal(decoder(file), want)
        with pytest.raises(rlx.Error, match="image"):
            decoder(file[5:])


def test_the_parts_of_an_open_axis_are_all_of_it():
    parts = model(
        [helper.make_node("SplitToSequence", ["x", "sizes"], ["s"], axis=0)],
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n"]), helper.make_tensor_value_info("sizes", TensorProto.INT64, [2])],
        [helper.make_tensor_sequence_value_info("s", TensorProto.FLOAT, None)],
    )
    x = np.arange(5, dtype=np.float32)
    assert [p.tolist() for p in parts.run([x, np.int64([2, 3])])["s"]] == [[0, 1], [2, 3, 4]]
    with pytest.raises(rlx.Error):
        parts.run([x, np.int64([2, 2])])
