"""Optuna's journal of a sweep: written by one process at a time, and believed once it is checked.

It is JSON, a line for each operation, and reading it runs no code.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

import optuna
from filelock import FileLock
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend, JournalFileOpenLock
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState

from pfdl._internal.files import read_bytes_file
from pfdl.runs import LOCK, set_aside

if TYPE_CHECKING:
    from pfdl.vision.sweeping import SweepConfig

JOURNAL = "study.log"
CANDIDATE, REASON = "candidate", "reason"
"""What a trial is called, and why it failed, among its user attributes."""
_STUDY = "sweep"
_FIXED = "fixed_params"
"""Optuna's name for the values of a trial that was enqueued."""


class _JournalLock(JournalFileOpenLock):
    """A lock that ends with the process that holds it, however that ends.

    Optuna's own is a link or a file, which outlives a process that is killed while it writes.
    """

    def __init__(self, journal: Path) -> None:
        super().__init__(str(journal))
        self._journal = journal
        self._of_process = FileLock(journal.with_name(f"{LOCK}-study"))

    def acquire(self) -> bool:
        """Wait for the other processes, and drop what one that was killed left half written."""
        self._of_process.acquire()
        try:
            _drop_unfinished_line(self._journal)
        except BaseException:
            self.release()
            raise
        return True

    def release(self) -> None:
        """Let the next process write."""
        self._of_process.release()


def open_study(output: Path) -> optuna.Study:
    """Open the study of a sweep that this process or its parent has checked."""
    return optuna.load_study(study_name=_STUDY, storage=_open_storage(output))


def resume_study(output: Path, config: SweepConfig) -> optuna.Study:
    """Open the study of a sweep, or begin one.

    What cannot be read is set aside; then another study begins, for which finished trainings are
    not done again.
    """
    journal = output / JOURNAL
    old_lock = journal.with_name(f"{JOURNAL}.lock")  # Optuna's own, of an older version of pfdl
    old_lock.unlink(missing_ok=True)
    try:
        is_there = os.path.lexists(journal) and read_study(output, config) is not None
    except ValueError as error:
        set_aside(journal, error, "the sweep resumes from the run folders")
        is_there = False
    if not is_there:
        storage = _open_storage(output)
        optuna.create_study(storage=storage, study_name=_STUDY, direction="maximize")
    return open_study(output)


def read_study(output: Path, config: SweepConfig) -> list[FrozenTrial] | None:
    """Return the trials that a journal holds, each of which this sweep can have made.

    Args:
        output: The run folder of the sweep.
        config: What the sweep tries.

    Returns:
        The trials; None if the sweep was killed before it wrote a whole line.

    Raises:
        OSError: If the journal cannot be read.
        ValueError: If it is damaged, or holds what no such sweep would have written.
    """
    journal = output / JOURNAL
    if journal.is_symlink():  # trials would be written to wherever it leads
        raise ValueError(f"{journal} is a symbolic link.")
    lines = read_bytes_file(journal).split(b"\n")[:-1]  # behind the last end a line is unfinished
    if not lines:
        return None
    try:
        for line in lines:
            json.loads(line)  # Optuna passes over a broken line until another one follows
        study = open_study(output)
        if study.directions != [StudyDirection.MAXIMIZE]:
            raise ValueError("its study does not look for the highest score")
        trials = study.get_trials()
        combinations = config.combinations()
        for trial in trials:
            _check_trial(trial, config, combinations)
    except (MemoryError, OSError):
        raise
    except Exception as error:  # Optuna checks nothing, and stumbles in any way over what is wrong
        what = str(error) if isinstance(error, ValueError) else repr(error)
        raise ValueError(f"{journal} is damaged ({what[:200]}).") from error
    return trials


def _check_trial(
    trial: FrozenTrial, config: SweepConfig, combinations: Sequence[Mapping[str, Any]]
) -> None:
    """Raise, whatever it is, unless this sweep can have made the trial."""
    who = f"its trial {trial.number}"
    space = config.distributions()
    prescribed = trial.system_attrs.get(_FIXED, {})
    if combinations and prescribed != combinations[trial.number]:
        raise ValueError(f"{who} is another combination")
    for name, value in {**trial.params, **prescribed}.items():
        if not space[name]._contains(space[name].to_internal_repr(value)):
            raise ValueError(f"{who} has {value!r} for {name}, which is not in the space")
        if trial.params.get(name, value) != value:
            raise ValueError(f"{who} has another value for {name} than was prescribed")
        if trial.distributions.get(name, space[name]) != space[name]:
            raise ValueError(f"{who} has another range, or other values, for {name}")
    if set(trial.system_attrs) - {_FIXED} or set(trial.user_attrs) - {CANDIDATE, REASON}:
        raise ValueError(f"{who} has attributes that no sweep sets")
    _check_scores(trial, config.seeds)
    if trial.state not in (TrialState.RUNNING, TrialState.WAITING):
        if set(trial.params) != set(space):
            raise ValueError(f"{who} has ended without a value for every setting")
        _check_end(trial, config)


def _check_scores(trial: FrozenTrial, seeds: int) -> None:
    scores = trial.intermediate_values
    in_order = list(scores) == list(range(len(scores))) and len(scores) <= seeds
    if not in_order or not all(0 <= score <= 100 for score in scores.values()):
        raise ValueError(f"its trial {trial.number} has scores that no sweep gives")


def _check_end(trial: FrozenTrial, config: SweepConfig) -> None:
    """Raise unless a trial that has ended says all that is read of it later."""
    who = f"its trial {trial.number}"
    if trial.user_attrs[CANDIDATE] != config.candidate(trial.params)[0]:
        raise ValueError(f"{who} is called by other settings than it has")
    if trial.state is TrialState.FAIL:
        if not isinstance(trial.user_attrs[REASON], str) or trial.values is not None:
            raise ValueError(f"{who} failed, and does not say why")
    elif trial.state is not TrialState.COMPLETE:
        raise ValueError(f"{who} ended in a way in which no sweep ends one")
    elif trial.values != [fmean(trial.intermediate_values.values())]:
        raise ValueError(f"{who} has a value that is not the mean of its scores")


def _open_storage(output: Path) -> JournalStorage:
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    journal = output.absolute() / JOURNAL
    return JournalStorage(JournalFileBackend(str(journal), _JournalLock(journal)))


def _drop_unfinished_line(journal: Path) -> None:
    """Shorten the journal to its last whole line: more would be written behind half a line."""
    with journal.open("rb") as stream:
        size = stream.seek(0, os.SEEK_END)
        stream.seek(max(0, size - 1))
        if stream.read() in (b"", b"\n"):
            return
    content = journal.read_bytes()
    os.truncate(journal, content.rfind(b"\n") + 1)
