"""A resumed run equals the uninterrupted one, bit by bit."""

import keras
import numpy as np
import pytest

import keras_gsp as gsp

STEPS, EPOCHS = 3, 6


def build_model(optimizer="adam", units=5, run_eagerly=True):
    keras.utils.set_random_seed(0)
    model = keras.Sequential(
        [
            keras.Input((4,)),
            keras.layers.Dense(units, activation="relu"),
            keras.layers.BatchNormalization(),
            keras.layers.Dropout(0.5, seed=3),
            keras.layers.Dense(1),
        ]
    )
    # Eager steps: a test of three steps would wait for tracing otherwise.
    model.compile(OPTIMIZERS[optimizer](), "mse", run_eagerly=run_eagerly)
    return model


optimizers = keras.optimizers
OPTIMIZERS = {
    "adam": lambda: optimizers.Adam(1e-2),
    "sgd": lambda: optimizers.SGD(1e-2, momentum=0.9),
    "multi": lambda: optimizers.MultiOptimizer(
        optimizers.OptimizerMap(
            optimizers.Adam(1e-2), {".*bias": optimizers.SGD(0.1, 0.9)}
        )
    ),
    "loss_scale": lambda: optimizers.LossScaleOptimizer(
        optimizers.AdamW(1e-2), dynamic_growth_steps=4
    ),
}


def batches(first_step=0):
    step = first_step
    while True:
        random = np.random.default_rng(step)
        images = random.normal(size=(8, 4)).astype("float32")
        yield images, images[:, :1] ** 2
        step += 1


def fit(model, resume, *, others=(), epochs=EPOCHS, steps=STEPS):
    used = {"callbacks": [*others, resume], "verbose": 0, "epochs": epochs}
    model.fit(batches(resume.restore(model)), steps_per_epoch=steps, **used)
    return model


def everything(model):
    return [
        np.asarray(keras.ops.convert_to_numpy(variable))
        for variable in (*model.variables, *model.optimizer.variables)
    ]


def assert_bit_identical(model, other):
    assert len(everything(model)) > 10
    np.testing.assert_equal(everything(model), everything(other))


def run(folder, epochs=EPOCHS, *, model=None, watched=()):
    """A training, from the folder's last checkpoint if it has one."""
    resume = gsp.callbacks.ExactResume(folder, callbacks=[*watched])
    return fit(model or build_model(), resume, others=watched, epochs=epochs)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_resumed_run_equals_uninterrupted_run(tmp_path, optimizer):
    found = []
    for folder, epochs in (("a", EPOCHS), ("b", 2), ("b", EPOCHS)):
        model = build_model(optimizer, run_eagerly=False)
        found.append(run(tmp_path / folder, epochs, model=model))
    assert_bit_identical(found[0], found[2])


@pytest.mark.skipif(
    keras.backend.backend() == "torch", reason="Keras takes single steps there"
)
def test_steps_are_counted_also_in_larger_executions(tmp_path):
    model = build_model()
    model.compile("sgd", "mse", steps_per_execution=2)
    resume = gsp.callbacks.ExactResume(tmp_path)
    fit(model, resume, epochs=2, steps=4)
    assert resume.step == 8


def test_batches_whose_ends_arrive_out_of_order_are_all_counted(tmp_path):
    resume = gsp.callbacks.ExactResume(tmp_path)
    resume.set_model(build_model())
    resume.set_params({"epochs": 2, "steps": 3})
    resume.on_train_begin()
    for epoch in range(2):
        resume.on_epoch_begin(epoch)
        for batch in (0, 2, 1):  # Keras reports them from several threads.
            resume.on_train_batch_end(batch)
        resume.on_epoch_end(epoch)
    assert resume.step == 6


def test_callbacks_go_on_where_they_were(tmp_path):
    found = []
    for folder, epochs in (("a", EPOCHS), ("b", 1), ("b", 4), ("b", EPOCHS)):
        plateau = keras.callbacks.ReduceLROnPlateau(
            "loss", mode="min", patience=1, min_delta=10.0
        )
        stopping = keras.callbacks.EarlyStopping(
            "loss", mode="min", patience=50, restore_best_weights=True
        )
        watched = plateau, stopping
        found.append(run(tmp_path / folder, epochs, watched=watched))
    assert float(found[0].optimizer.learning_rate) < 1e-4
    assert_bit_identical(found[0], found[3])


def test_a_run_that_was_stopped_early_stays_stopped(tmp_path):
    found = []
    for _ in range(2):
        stopping = keras.callbacks.EarlyStopping(
            "loss", mode="min", patience=1, min_delta=10.0
        )
        found.append(run(tmp_path, 50, watched=[stopping]))
    assert int(found[0].optimizer.iterations) < 50 * STEPS
    assert_bit_identical(*found)


def test_without_restore_fit_resumes_by_itself_and_says_so(tmp_path):
    images, targets = next(batches())

    def run(folder, epochs):
        model = build_model()
        resume = gsp.callbacks.ExactResume(tmp_path / folder)
        options = {"epochs": epochs, "callbacks": [resume], "verbose": 0}
        model.fit(images, targets, batch_size=4, shuffle=False, **options)
        return model

    whole = run("whole", 4)
    run("parts", 2)
    with pytest.warns(UserWarning, match="after epoch 2, step 4"):
        part = run("parts", 4)
    assert_bit_identical(part, whole)


def test_the_last_two_checkpoints_are_kept(tmp_path):
    run(tmp_path, 5)
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == [f"step-{step:09d}.npz" for step in (12, 15)]
    with pytest.raises(TypeError, match="`settings` must be .* JSON"):
        gsp.callbacks.ExactResume(tmp_path, settings={"a": object()})


def test_an_unusable_checkpoint_is_named_and_the_one_before_used(tmp_path):
    whole = run(tmp_path / "whole")
    folder, other = tmp_path / "parts", tmp_path / "other"
    run(folder, 3)
    run(other, 3, model=build_model(units=7))
    newest = sorted(folder.iterdir())[-1]
    cut = newest.read_bytes()[:-1000]
    np.savez(tmp_path / "foreign.npz", weights=np.zeros(3))
    foreign = (tmp_path / "foreign.npz").read_bytes()
    for contents in (cut, foreign, (other / newest.name).read_bytes()):
        newest.write_bytes(contents)
        resume = gsp.callbacks.ExactResume(folder)
        with pytest.warns(UserWarning, match=f"Refused a .*{newest.name}"):
            assert resume.restore(build_model()) == 2 * STEPS
    with pytest.warns(UserWarning, match="Refused a checkpoint"):
        assert_bit_identical(run(folder), whole)


def refused(tmp_path, message, model=None, **arguments):
    """Restoring raises, changes no weight and removes no file."""
    model = model or build_model()
    files = sorted(tmp_path.iterdir())
    before = everything(model)
    resume = gsp.callbacks.ExactResume(tmp_path, **arguments)
    with pytest.raises(ValueError, match=message):
        fit(model, resume)
    np.testing.assert_equal(everything(model)[: len(before)], before)
    assert sorted(tmp_path.iterdir()) == files


def test_other_settings_are_refused_by_name(tmp_path):
    settings = {"seed": 1, "recipe": "a"}
    resume = gsp.callbacks.ExactResume(tmp_path, settings=settings)
    fit(build_model(), resume, epochs=1)
    message = "seed: 1 in the checkpoint, 2 now"
    refused(tmp_path, message, settings={"seed": 2, "recipe": "a"})
    refused(tmp_path, "rate: None .* 3 now", settings=settings | {"rate": 3})
    again = gsp.callbacks.ExactResume(tmp_path)
    assert again.restore(build_model()) == STEPS
    assert (again.epoch, again.step) == (1, STEPS)
    for step in (STEPS, 6):  # All that cannot be used are named.
        (tmp_path / f"step-{step:09d}.npz").write_bytes(b"not a checkpoint")
    refused(tmp_path, "000006.npz.*000003.npz")


def test_other_weights_optimizers_callbacks_or_steps_are_refused(tmp_path):
    run(tmp_path, 1)
    refused(tmp_path, r"float32 \(4, 7\)", model=build_model(units=7))
    refused(tmp_path, "optimizer: .*SGD", model=build_model("sgd"))
    stopping = keras.callbacks.EarlyStopping("loss")
    refused(tmp_path, "callbacks: .*EarlyStopping", callbacks=[stopping])
    with pytest.raises(ValueError, match=f"`steps_per_epoch`.*{STEPS}"):
        fit(build_model(), gsp.callbacks.ExactResume(tmp_path), steps=5)


def test_a_model_without_weights_or_optimizer_is_refused(tmp_path):
    resume = gsp.callbacks.ExactResume(tmp_path)
    unbuilt = keras.Sequential([keras.layers.Dense(1)])
    unbuilt.compile("sgd", "mse")
    uncompiled = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    for model in (unbuilt, uncompiled):
        with pytest.raises(RuntimeError, match="built and compiled"):
            resume.restore(model)
