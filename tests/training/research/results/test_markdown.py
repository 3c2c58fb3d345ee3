"""Tables and the numbers in them."""

from training.research.results.markdown import (
    markdown_table,
    mean_and_deviation,
    spread,
)


def test_the_spread_is_the_deviation_of_the_seeds():
    found = mean_and_deviation([1.0, 2.0, 3.0])
    assert (found["mean"], found["std"]) == (2.0, 1.0)
    assert found["values"] == [1.0, 2.0, 3.0]
    assert spread(found, digits=1) == "2.0 ± 1.0"
    assert spread(found, factor=100, digits=0) == "200 ± 100"


def test_a_single_number_has_no_deviation():
    found = mean_and_deviation([0.5])
    assert found["std"] is None
    assert spread(found, digits=2) == "0.50"


def test_a_table_has_a_line_below_its_headings():
    assert markdown_table(["a", "b"], [[1, 2]]) == (
        "| a | b |\n| --- | --- |\n| 1 | 2 |"
    )
    assert markdown_table(["a", "b"], [], num_left=1).endswith("| --- | ---: |")
