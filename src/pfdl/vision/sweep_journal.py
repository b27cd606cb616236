"""The study of a sweep: how its processes tell each other of trials, and what is kept of them.

The processes talk through Optuna's journal, which every start empties. What has ended is kept
as JSON, from which the next start takes it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

import optuna
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend, JournalFileOpenLock
from optuna.trial import FrozenTrial, TrialState, create_trial

from pfdl._internal.files import read_json, write_json
from pfdl.runs import set_aside

if TYPE_CHECKING:
    from pfdl.vision.sweeping import SweepConfig

JOURNAL = "study.log"
TRIALS = "trials.json"
CANDIDATE, REASON = "candidate", "reason"
"""What a trial is called, and why it failed, among its user attributes."""
_STUDY = "sweep"


def open_study(output: Path) -> optuna.Study:
    """Open the study that this process or its parent has begun."""
    return optuna.load_study(study_name=_STUDY, storage=_open_storage(output))


def begin_study(
    output: Path, config: SweepConfig, prescribed: Sequence[dict[str, Any]]
) -> optuna.Study:
    """Begin the study of a sweep with the trials that have ended; all others wait for their turn.

    Args:
        output: The run folder of the sweep.
        config: What is tried.
        prescribed: The values of the trials, as far as they are known, in the order of their
            numbers.
    """
    journal = output / JOURNAL
    for old in (journal, journal.with_name(f"{JOURNAL}.lock")):
        old.unlink(missing_ok=True)
    storage = _open_storage(output)
    study = optuna.create_study(storage=storage, study_name=_STUDY, direction="maximize")
    ended = _read_trials(output, config)
    waiting = prescribed[: config.number]
    for trial, values in zip_longest(ended, waiting):
        if trial is not None:
            study.add_trial(trial)
        else:
            study.enqueue_trial(values or {})
    return study


def keep_trials(study: optuna.Study, output: Path) -> None:
    """Write down the trials that have ended; null for the others."""
    trials: list[dict[str, Any] | None] = []
    for trial in study.get_trials():
        told = {
            "params": trial.params,
            "scores": list(trial.intermediate_values.values()),
            "reason": trial.user_attrs.get(REASON),
        }
        has_ended = trial.state in (TrialState.COMPLETE, TrialState.FAIL)
        trials.append(told if has_ended else None)
    write_json(output / TRIALS, trials)


def _read_trials(output: Path, config: SweepConfig) -> list[FrozenTrial | None]:
    """Return what :func:`keep_trials` wrote; nothing if there is none, damage is set aside."""
    path = output / TRIALS
    try:
        trials = [None if told is None else _ended(told, config) for told in read_json(path)]
    except FileNotFoundError:
        return []
    except (MemoryError, OSError):
        raise
    except Exception as error:  # Optuna stumbles in any way over what no sweep has written
        set_aside(path, f"{path} is damaged ({error}).", "the sweep resumes from the run folders")
        return []
    while trials and trials[-1] is None:
        trials.pop()
    return trials


def _ended(told: Mapping[str, Any], config: SweepConfig) -> FrozenTrial:
    scores = told["scores"]
    label, _ = config.candidate(told["params"])
    described = {
        "params": told["params"],
        "distributions": config.distributions(),
        "intermediate_values": dict(enumerate(scores)),
    }
    if told["reason"] is None:
        attributes = {CANDIDATE: label}
        return create_trial(value=fmean(scores), user_attrs=attributes, **described)
    attributes = {CANDIDATE: label, REASON: str(told["reason"])}
    return create_trial(state=TrialState.FAIL, user_attrs=attributes, **described)


def _open_storage(output: Path) -> JournalStorage:
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    journal = str(output.absolute() / JOURNAL)
    return JournalStorage(JournalFileBackend(journal, JournalFileOpenLock(journal)))
