"""Should I train at all? `python -m training.advise --data-dir my_images`.

Tries steps of growing cost on a folder of images: raw features, whitening,
heads on the frozen backbone, LoRA, fine-tuning. Each is scored on classes that
it has not seen. A step whose first fold excludes a gain of `--worth` points
ends there; where that is LoRA, fine-tuning is not tried. The time that is left
goes to more training steps of the better of these two. A command that was
stopped goes on when it is given again.

`--output` gets advice.md, advice.png and advice.json.
"""

import logging
import shlex
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from training.recipes.named import named
from training.recipes.recipe import Recipe
from training.recipes.settings import positive
from training.runs.command_line import run_command
from training.runs.run_directory import write_json, write_text

# MAP@R in % below which no step knows the images.
TOO_LOW = 10.0
# Settings of the winner's command, but for `steps`: its recipe has more.
CHOSEN = "backbone", "loss", "pooling"
OPTIONS = (
    *("backbone_width", "backbone_weights", "crop_size", "frozen"),
    *("cache_features", "augmentation", "lora_rank", "whitening"),
    *("embedding_size", "transport_ratio", "inverse_temperature"),
    *("learning_rate", "proxy_learning_rate_multiplier"),
)


@dataclass(frozen=True)
class AdviseCommand:
    """Finds out what training would gain on a folder of images."""

    data_dir: str
    """Folder or archive of images with one folder per class, or list file."""
    dataset: Literal["folder", "csv"] = "folder"
    """Layout of the data set, as for training.train."""
    minutes: Annotated[float, positive] = 10.0
    """Minutes to spend; a step that would take longer is not begun."""
    worth: Annotated[float, positive] = 1.0
    """Points of MAP@R, in %, that a more expensive step must gain."""
    backbones: tuple[str, ...] = ("mobilenet-v2",)
    """Pretrained networks to compare: NAME, NAME@WIDTH, NAME=FILE or
    NAME@WIDTH=FILE with a file of weights; without one, those of ImageNet."""
    crop_size: Annotated[int, positive] = 160
    """Side of the images, in pixels."""
    head_steps: Annotated[int, positive] = 400
    """Training steps of a head."""
    tuning_steps: Annotated[int, positive] = 200
    """Training steps of LoRA and of fine-tuning; the better one doubles them
    while that gains and time is left."""
    output: Path = Path("runs/advice")
    """Folder of the runs and of the result."""

    def __post_init__(self) -> None:
        if not self.backbones:
            raise ValueError("`backbones` must name one. Received: none.")

    def features(self) -> list[Recipe]:
        """Recipes of the raw features of each backbone."""
        return [self._features(text) for text in self.backbones]

    def _features(self, text):
        name, _, file = text.partition("=")
        name, _, width = name.partition("@")
        own: dict[str, Any] = {}
        if width:
            own["backbone_width"] = float(width)
        if file:
            own["backbone_weights"] = file
        return named("folder-features", backbone=name).with_(
            dataset=self.dataset,
            data_dir=self.data_dir,
            crop_size=self.crop_size,
            steps=0,
            **own,
        )


def main(arguments: list[str] | None = None) -> None:
    """Runs the command line."""
    run_command("advise", __doc__, AdviseCommand, _advise, arguments)


def _advise(command):
    # TensorFlow warns of many models in one process, which is the idea here.
    logging.getLogger("tensorflow").setLevel(logging.ERROR)
    from training.datasets.reading import READERS
    from training.recipes.data import check_sources
    from training.runs.trial import MIN_CLASSES, Trial

    features = command.features()
    for recipe in features:
        check_sources(recipe)
    splits = READERS[command.dataset](command.data_dir)
    count = splits.train.num_classes + splits.test.num_classes
    if count < MIN_CLASSES:
        raise ValueError(
            f"`data_dir` must have at least {MIN_CLASSES} classes, so that "
            "each third holds some out, and some of the others validate. "
            f"Received: {count} classes in {command.data_dir}."
        )
    trial = Trial(
        features,
        command.output,
        minutes=command.minutes,
        worth=command.worth,
        head_steps=command.head_steps,
        tuning_steps=command.tuning_steps,
    )
    trial.run()
    advice = advice_of(command, trial)
    write_json(command.output / "advice.json", advice)
    draw(advice, command.output / "advice.png")
    page = page_of(advice)
    write_text(command.output / "advice.md", page)
    print(f"\n{page}\n{command.output}/: advice.md, advice.png, advice.json")


def advice_of(command: AdviseCommand, trial: Any) -> dict:
    """Returns everything that the command found out, for JSON."""
    raw, best = trial.steps[0], trial.best
    milliseconds = trial.milliseconds(best.recipe)
    rows = [
        {
            "step": step.name,
            "chosen": _chosen(step, raw),
            "map_at_r": step.map_at_r,
            "gain": step.gain(raw) if step is not raw else None,
            "folds": len(step.scores),
            "minutes": step.minutes,
            "note": step.note,
        }
        for step in trial.steps
    ]
    return {
        "sentence": verdict(trial.steps, best, trial.skipped),
        "command": shlex.join(training_command(command, best.recipe)),
        "milliseconds": milliseconds,
        "classes": sum(len({*labels}) for labels in raw.classes),
        "images": sum(map(len, raw.classes)),
        "worth": command.worth,
        "rows": rows,
        "skipped": trial.skipped,
        "hints": trial.hints(),
    }


def verdict(steps: list, best: Any, skipped: Iterable[str] = ()) -> str:
    """Says what to do, of the scored steps (raw features first) the `best`."""
    raw = steps[0]
    highest = max(step.map_at_r for step in steps)
    if highest < TOO_LOW:
        text = (
            f"Undecided: MAP@R is {highest:.1f} % at most, so these networks "
            "have not seen such images. Try another backbone, or fine-tune it "
            "for thousands of steps with --tuning-steps."
        )
    elif best is raw:
        text = "Do not train: search with the raw features."
    else:
        what = "Whiten" if best.name == "whitening" else f"Train: {best.name}"
        text = (
            f"{what}, which gains {interval_text(best.gain(raw))} points of "
            "MAP@R over the raw features."
        )
        cheaper = max(
            steps[: steps.index(best)],
            key=lambda step: step.gain(raw)["difference"],
        )
        gain = best.gain(cheaper)
        if gain["low"] <= 0:
            text += (
                " These images cannot tell it for sure from the cheaper "
                f"{cheaper.name} ({interval_text(gain)})."
            )
    rising = [step.name for step in steps if step.is_rising]
    if rising:
        text += (
            f" Scores still rose at the end of: {', '.join(rising)}. More "
            "training steps may gain more."
        )
    if skipped:
        text += f" No time was left to try {' and '.join(skipped)}."
    return text


def training_command(command: AdviseCommand, recipe: Recipe) -> list[str]:
    """Returns the command that trains a recipe to its end."""
    name: str = command.dataset
    if name == "folder" and recipe.cache_features:
        name = "folder-features"
    choices = {one: getattr(recipe, one) for one in CHOSEN}
    base = named(name, **choices)
    words = ["python", "-m", "training.train", name]
    words += ["--data-dir", command.data_dir]
    for option in (
        *CHOSEN,
        *(OPTIONS if recipe.steps else (*OPTIONS, "steps")),
    ):
        value, word = getattr(recipe, option), option.replace("_", "-")
        if option not in CHOSEN and value == getattr(base, option):
            continue
        if isinstance(value, bool):
            words.append(f"--{word}" if value else f"--no-{word}")
        else:
            words += [f"--{word}", str(value)]
    return words


def page_of(advice: dict) -> str:
    """Returns the advice as Markdown."""
    lines = ["# Should I train?", "", advice["sentence"], ""]
    lines += [
        "| step | chosen | MAP@R % | gain over raw | folds | minutes |",
        "| --- | --- | ---: | --- | ---: | ---: |",
    ]
    for row in advice["rows"]:
        cells = [row["step"], row["chosen"], f"{row['map_at_r']:.1f}"]
        gain = interval_text(row["gain"]) if row["gain"] else ""
        note = f" ({row['note']})" if row["note"] else ""
        cells += [gain + note, str(row["folds"]), f"{row['minutes']:.1f}"]
        lines.append(f"| {' | '.join(cells)} |")
    lines += [
        f"| {name} | not tried, no time: {minutes:.1f} min or more | | | 0 | |"
        for name, minutes in advice["skipped"].items()
    ]
    lines += [
        "",
        f"{advice['images']:,} images of {advice['classes']} classes, each "
        "held out once. Gains are points of MAP@R, query by query, with 95 % "
        f"intervals over classes. An image takes {advice['milliseconds']:.1f} "
        "ms through the backbone.",
        "",
        "Train it to its end:",
        "",
        f"    {advice['command']}",
        "",
        "What other images would change, estimated by leaving half out, or by "
        "cutting to 70 % of the side:",
        "",
    ]
    lines += [
        f"- {name}: {interval_text(gain)}"
        for name, gain in advice["hints"].items()
    ]
    return "\n".join([*lines, "", "![Gain against minutes](advice.png)", ""])


def draw(advice: dict, path: Path) -> None:
    """Draws the gain of each step against the minutes until then."""
    from training.pictures.palette import BLUE, picture

    with picture(path, figsize=(7, 4)) as axes:
        axis, minutes = axes[0, 0], 0.0
        for row in advice["rows"]:
            minutes += row["minutes"]
            gain = row["gain"] or {"difference": 0, "low": 0, "high": 0}
            middle = gain["difference"]
            ends = [[middle - gain["low"]], [gain["high"] - middle]]
            axis.errorbar(minutes, middle, ends, fmt="o", color=BLUE, capsize=4)
            axis.annotate(
                row["step"],
                (minutes, middle),
                xytext=(8, 6),
                textcoords="offset points",
            )
        axis.axhline(0, color="0.6", linewidth=1)
        axis.margins(x=0.2)
        axis.set_xlabel("minutes")
        axis.set_ylabel("gain over raw features\n(points of MAP@R)")


def _chosen(step, raw):
    recipe = step.recipe
    if not recipe.steps:
        words = [recipe.backbone, f"width {recipe.backbone_width:g}"]
        return ", ".join(words if step is raw else [recipe.whitening])
    return f"{recipe.loss}, {recipe.pooling}, rate {recipe.learning_rate:g}"


def interval_text(gain: dict) -> str:
    """Formats a gain in points, `+1.3 [+0.5, +2.0]`."""
    return "{difference:+.1f} [{low:+.1f}, {high:+.1f}]".format(**gain)


if __name__ == "__main__":
    main()
