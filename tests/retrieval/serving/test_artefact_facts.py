"""The model card: what hubs read, and nothing private."""

import json
import pathlib

from keras_gsp.retrieval.serving.artefact_facts import (
    without_folders,
    write_facts,
)

BARE = {"image_shape": [32, 32, 3], "crop_fraction": 1.0, "embedding_size": 8}
SCORES = {"map_at_r": 0.31, "lower_map_at_r": 0.29, "upper_map_at_r": 0.33}
FACTS = BARE | {
    "run": "birds,seed=0",
    "license": "apache-2.0",
    "recipe": {"dataset": "folder", "data_dir": "birds.zip"},
    "scores": SCORES | {"precision_at_1": 0.7, "num_queries": 50},
}


def front_matter(folder, facts):
    write_facts(folder, facts)
    card = (folder / "README.md").read_text()
    empty, front, _ = card.split("---\n", 2)
    assert empty == ""
    lines = (line.partition(": ") for line in front.splitlines())
    return {name: json.loads(value) for name, _, value in lines}, card


def test_a_card_begins_with_what_hubs_read(tmp_path):
    values, card = front_matter(tmp_path, FACTS)
    assert values["library_name"] == "keras"
    assert values["license"] == "apache-2.0"
    assert "| map_at_r | 0.3100 (0.2900 to 0.3300) |" in card
    assert "| num_queries | 50 |" in card and '"dataset": "folder"' in card
    values, card = front_matter(tmp_path, BARE)
    assert "license" not in values and "not measured" in card


def test_metadata_keep_no_folder_of_the_machine():
    home = pathlib.Path.home() / "someone" / "birds.zip"
    words = ["a/b", str(home), "../someone/birds.zip", "~/birds.zip"]
    given = {"recipe": {"data_dir": str(home), "words": words}}
    found = ["a/b", "birds.zip", "birds.zip", "birds.zip"]
    assert without_folders(given) == {
        "recipe": {"data_dir": "birds.zip", "words": found}
    }
