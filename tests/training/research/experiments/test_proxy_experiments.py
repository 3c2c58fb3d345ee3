"""The experiments on alternating proxies run at tiny sizes."""

import json

import keras
import numpy as np
import pytest

if keras.backend.backend() != "tensorflow":
    pytest.skip("experiments train on TensorFlow", allow_module_level=True)

from training.research.experiments import alternating_proxies, proxy_geometry
from training.research.experiments.proxy_geometry import violations
from training.research.results.pages import pages


def results_of(module, folder):
    name = module.__name__.rpartition(".")[2]
    record = folder / "docs" / f"{name}.json"
    module.main(["--smoke", "--out", str(folder), "--json", str(record)])
    assert (folder / f"{name}.png").stat().st_size > 10_000
    report = json.loads((folder / f"{name}.json").read_text())
    assert module.table(report["results"]) in pages(record.parent)[f"{name}.md"]
    return report["results"]


def test_proxy_geometry_measures_and_draws_every_problem(tmp_path, capsys):
    results = results_of(proxy_geometry, tmp_path)
    names = [row["name"] for row in results["rows"]]
    problems = ["CCP, problem 1", "CCP, problem 2"]
    others = ["samples, problem 1", "samples, problem 2"]
    assert names == ["before training", "single problem", *problems, *others]
    assert [*names[:4], names[-1]] == list(results["panels"])
    assert results["sample_steps"]["mean"] >= 2.0
    for row in results["rows"]:
        for measure in proxy_geometry.MEASURES:
            assert row[measure]["mean"] > 0.0
        for share, bound in (
            ("violations", "bound"),
            ("proxy_violations", "proxy_bound"),
        ):
            assert row[share]["mean"] <= row[bound]["mean"]
    assert results["panels"]["CCP, problem 1"]["next_proxies"] is not None
    assert "covering radius" in capsys.readouterr().out


def test_the_papers_numbers_are_of_samples_and_of_proxies():
    said = " ".join(proxy_geometry.__doc__.split())
    assert "98.06 when samples are trained with and 97.21 with proxies" in said


def sample_learner():
    settings = proxy_geometry.Settings(proxies_per_class=2)
    images, labels = proxy_geometry.load_images(settings, 0)[0]
    learner = proxy_geometry.build_learner(
        settings, images.shape[1:], 0, use_samples=True
    )
    return learner, images, labels


def test_samples_are_found_by_their_embeddings():
    learner, images, labels = sample_learner()
    chosen = [np.flatnonzero(labels == label)[3:5] for label in range(10)]
    embeddings = learner.encoder.predict(images, batch_size=64, verbose=0)
    learner.proxies.proxies.assign(embeddings[np.array(chosen)])
    learner.proxies.take(images, labels)
    expected = images[np.concatenate(chosen)]
    np.testing.assert_array_equal(learner.proxies.samples, expected)


def test_samples_stay_and_are_embedded_anew_with_a_gradient():
    import tensorflow as tf

    learner, images, labels = sample_learner()
    layer = learner.proxies
    assert not layer.trainable_variables
    layer.samples.assign(images[:20])
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(tf.square(layer.flat_proxies()))
    weights = learner.encoder.trainable_variables
    assert all(g is not None for g in tape.gradient(loss, weights))
    layer.note()
    before = np.array(layer.proxies)
    learner.train_on_batch(images[:40], labels[:40])
    np.testing.assert_array_equal(layer.proxies, before)
    np.testing.assert_array_equal(layer.samples, images[:20])
    layer.note()
    assert not np.allclose(layer.proxies, before, atol=1e-6)
    now = np.asarray(learner.encoder(images[:20]))
    np.testing.assert_allclose(now.reshape(10, 2, 2), layer.proxies, atol=1e-6)


def test_violations_are_those_of_a_loop():
    rng = np.random.default_rng(0)
    points, labels = rng.normal(size=(12, 3)), np.arange(12) % 3
    others, classes = rng.normal(size=(5, 3)), np.arange(5) % 3
    for references, known in ((points, labels), (others, classes)):
        wrong, losses = [], []
        for i, one in enumerate(points):
            for j, other in enumerate(references):
                if references is points and i == j:
                    continue
                distance = np.sqrt(sum((one - other) ** 2))
                if labels[i] == known[j]:
                    wrong.append(distance >= 1.0)
                    losses.append(distance)
                else:
                    wrong.append(distance <= 1.0)
                    losses.append(max(0.0, 2.0 - distance))
        found = violations(points, labels, references, known, margin=2.0)
        np.testing.assert_allclose(found, [np.mean(wrong), np.mean(losses)])


def test_more_than_two_dimensions_are_drawn_as_a_map(tmp_path):
    arguments = ["--smoke", "--out", str(tmp_path), "--embedding-size", "3"]
    proxy_geometry.main(arguments)
    report = json.loads((tmp_path / "proxy_geometry.json").read_text())
    panel = report["results"]["panels"]["CCP, problem 1"]
    assert np.shape(panel["points"]) == (200, 2)
    assert np.shape(panel["next_proxies"]) == (10, 4, 2)


@pytest.mark.slow
def test_alternating_proxies_compares_three_methods(tmp_path, capsys):
    results = results_of(alternating_proxies, tmp_path)
    problems = [row["problems"]["mean"] for row in results["rows"]]
    assert problems[:2] == [0.0, 1.0]
    assert problems[2] >= 1.0
    for row in results["rows"]:
        assert 0.0 <= row["map_at_r"]["mean"] <= 1.0
    assert results["cost"]["ratio"] > 0.0
    assert "times a plain one" in capsys.readouterr().out
