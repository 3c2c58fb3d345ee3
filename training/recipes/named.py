"""All named recipes: what `python -m training.train NAME` may start from."""

from training.recipes import glyphs, own_images, published
from training.recipes.recipe import Recipe


def named_recipes() -> dict[str, Recipe]:
    """Recipes by name, those of the embedded data set first."""
    return {**glyphs.RECIPES, **own_images.RECIPES, **published.RECIPES}


def run_name(name: str, recipe: Recipe) -> str:
    """A run's name: its recipe, every changed setting, and the seed."""
    base = named_recipes()[name]
    changed = [
        # Of a file its name alone: a run's name is a folder's.
        f"{field}={str(getattr(recipe, field)).rpartition('/')[2]}"
        for field in vars(base)
        if getattr(recipe, field) != getattr(base, field)
        and field not in ("seed", "data_dir")
    ]
    return ",".join([name, *changed, f"seed={recipe.seed}"])
