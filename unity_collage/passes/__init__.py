"""The passes: each an ``IRModule -> IRModule`` transformation, usable alone in a ``Sequential``."""

from .annotate_candidates import AnnotateCandidates
from .apply_plan import ApplyPlan
from .channels_last import ChannelsLast
from .choose_by_rule import ChooseByRule
from .choose_devices import ChooseDevices
from .choose_threads import ChooseThreads
from .choose_variants import ChooseVariants
from .confirm_costs import ConfirmCosts
from .correct_costs import CorrectCosts
from .estimate_costs import EstimateCosts
from .estimate_needed_costs import EstimateNeededCosts
from .expand_transposed import ExpandTransposed
from .fuse_remaining import FuseRemaining
from .make_variants import MakeVariants
from .merge_copies import MergeCopies
from .multiply_bytes import MultiplyBytes
from .offer_layouts import OfferLayouts
from .offer_merged import OfferMerged
from .offload_byoc import OffloadBYOC
from .partition_by_device import PartitionByDevice
from .place_by_pattern import PlaceByPattern
from .plan_devices import PlanDevices
from .prepare import Prepare
from .schedule_branches import ScheduleBranches
from .search_partition import SearchPartition, why_not_plan
from .split_sizes import SplitSizes
from .stack_products import StackProducts
from .to_precision import ToPrecision
from .weigh_sizes import WeighSizes

__all__ = [
    "AnnotateCandidates",
    "ApplyPlan",
    "ChannelsLast",
    "ChooseByRule",
    "ChooseDevices",
    "ChooseThreads",
    "ChooseVariants",
    "ConfirmCosts",
    "CorrectCosts",
    "EstimateCosts",
    "EstimateNeededCosts",
    "ExpandTransposed",
    "FuseRemaining",
    "MakeVariants",
    "MergeCopies",
    "MultiplyBytes",
    "OfferLayouts",
    "OfferMerged",
    "OffloadBYOC",
    "PartitionByDevice",
    "PlaceByPattern",
    "PlanDevices",
    "Prepare",
    "ScheduleBranches",
    "SearchPartition",
    "SplitSizes",
    "StackProducts",
    "ToPrecision",
    "WeighSizes",
    "why_not_plan",
]
