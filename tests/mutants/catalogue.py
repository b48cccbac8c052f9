"""All mutants, by layer, from the list that the test programme names."""

from collections.abc import Mapping
from typing import Final

from tests.mutants.catalogue_budgets import BUDGETS
from tests.mutants.catalogue_caches import CACHES
from tests.mutants.catalogue_departures import DEPARTURES
from tests.mutants.catalogue_downscales import DOWNSCALE_CONTROL
from tests.mutants.catalogue_executing import EXECUTING
from tests.mutants.catalogue_limits import LIMITS
from tests.mutants.catalogue_planning import PLANNING
from tests.mutants.catalogue_reviews import REVIEWS
from tests.mutants.catalogue_scaling import SCALING
from tests.mutants.entry import Mutant

ALL: Final = (
    *PLANNING,
    *EXECUTING,
    *LIMITS,
    *CACHES,
    *REVIEWS,
    *DOWNSCALE_CONTROL,
    *SCALING,
    *BUDGETS,
    *DEPARTURES,
)
CATALOGUE: Final[Mapping[str, Mutant]] = {mutant.name: mutant for mutant in ALL}
