"""The recogniser: which group of like work each job belongs to. Rows in, rows out, no I/O."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from barograph_agent.protocol.wire import Column
from barograph_collector.daemon.quarantine import Quarantine
from barograph_collector.daemon.runner import Output
from barograph_modeler.recognition.family import Decision, Family, How, Merge, Relevance, RunTime, UnknownWork
from barograph_modeler.recognition.request import Asked, Request, family_of
from barograph_modeler.recognition.signature import Signature, TrafficLook, looks, may_move
from barograph_modeler.state import lru
from barograph_modeler.state.stateful import Stateful

WAIT_SECONDS: Final = 5.0
"""How long a job waits for its row of `works`, where there have been such rows: sidecars write it within 2 s."""
FAMILIES: Final = 10_000
MAX_REASON: Final = 200
"""Characters of an agent's reason that are written on."""
MAX_BYTES, KEPT_SHARE = 256 << 20, 0.9
"""Estimated bytes of all requests; beyond them families without a job for longest are forgotten, to this share."""
APPLICATIONS: Final = 10_000
JOBS: Final = 20_000
"""Jobs waiting, or running, whose groups are known; the oldest are forgotten."""
RECORDED: Final = 200_000
"""Assignments of the log that are kept, to be the same when it is read again."""


Histories: TypeAlias = Literal["user", "account", "shared"]
"""Whose runs are compared with each other: those of a user, of an account, or all."""


class Assigned(NamedTuple):
    """A job and its group. asked: what it asked for, None if unknown. by_traffic: whether what it communicates
    decided."""

    job: str
    group: str
    asked: Asked | None
    by_traffic: bool = False


class _Place(NamedTuple):
    """Where a job is.

    request: what it asked for, None if unknown. differ: features in which it is unlike the group. is_recorded: whether
    this is known from the log.
    """

    family: str  # its key
    group: str
    how: How
    reason: str
    request: Request | None = None
    asked: Asked | None = None
    differ: frozenset[str] = frozenset()
    is_recorded: bool = False


class _Waiting:
    """A job without a group."""

    def __init__(self, seen_at: float) -> None:
        self.seen_at = seen_at
        self.row: Mapping[str, Any] | None = None
        self.request: Request | None = None
        self.asked: Asked | None = None
        self.reason = ""
        self.has_evidence = self.is_over = False


class Recognizer(Stateful):
    """Assigns jobs to groups as rows of `jobs`, `works`, `signatures` and `runs` arrive.

    Call `read` with rows, then `step` for the jobs that have a group, or another one, now, and `end` for each run that
    was learned.
    Assignments that are in the log are repeated, not made again.
    """

    STATE = ("_families", "_relevance", "_waiting", "_places", "_signatures", "_fresh", "_has_evidence", "_size")

    def __init__(self, histories: Histories = "user") -> None:
        """histories: whose runs are compared with each other."""
        self._histories = histories
        self._families: OrderedDict[str, Family] = OrderedDict()
        self._relevance: OrderedDict[str, Relevance] = OrderedDict()
        self._waiting: OrderedDict[str, _Waiting] = OrderedDict()
        self._recorded: OrderedDict[str, str] = OrderedDict()
        self._places: OrderedDict[str, _Place] = OrderedDict()
        self._signatures: OrderedDict[str, dict[float, Signature]] = OrderedDict()
        """What jobs that have not ended communicate, by when that was."""
        self._fresh: dict[str, list[float]] = {}
        """Jobs of which such a signature has arrived, and when that was."""
        self._late: list[Assigned] = []
        """Jobs that have a group, and of which is known only now what they asked for."""
        self._has_evidence = False
        self._size = 0
        """Bytes of the requests of all families, or more: what they have lost is not subtracted at once."""
        self.quarantine = Quarantine(self.forget)
        """The owner of several processors replaces it with the one that they share."""
        self.outputs: list[Output] = []
        """Rows to write since the list was last cleared."""

    @property
    def idle(self) -> bool:
        """Whether no job waits for something that time will tell."""
        return all(one.row is None for one in self._waiting.values())

    def read(self, table: str, columns: Mapping[str, Column], now: float) -> None:
        """Read rows of one table. now: Unix seconds."""
        match table:
            case "assignments":
                for job, group in zip(columns["job"], columns["workload"], strict=True):
                    lru.store(self._recorded, job, group, RECORDED)
            case "jobs":
                for row in _rows(columns):
                    self._wait(row["job"], now).row = row
            case "works":
                self._has_evidence = True
                for row in _rows(columns):
                    self._read_evidence(row, now)
            case "signatures":
                for look in looks(columns):
                    self._read_look(look)
            case "runs":
                for job in columns["job"]:
                    if job in self._waiting:
                        self._waiting[job].is_over = True

    def _read_evidence(self, row: Mapping[str, Any], now: float) -> None:
        asked = None
        try:
            request, reason = Request.of_row(row), row["reason"]
            asked = request.asked(row) if request is not None else None
        except ValueError as error:
            request, reason = None, str(error)
        if row["job"] in self._places:
            self._learn_late(row["job"], request, asked, now)
            return
        waiting = self._wait(row["job"], now)
        waiting.has_evidence, waiting.request, waiting.reason, waiting.asked = True, request, reason, asked

    def _read_look(self, look: TrafficLook) -> None:
        known = lru.get(self._signatures, look.job, dict[float, Signature], JOBS)
        if look.when not in known or look.signature.intervals > known[look.when].intervals:
            known[look.when] = look.signature
            if may_move(look.elapsed_seconds, look.signature.intervals):
                self._fresh.setdefault(look.job, []).append(look.when)

    def _learn_late(self, job: str, request: Request | None, asked: Asked | None, now: float) -> None:
        """The very first job did not wait for its row, because there had been none."""
        place = self._places[job]
        family = self._families.get(place.family)
        if place.how != "none" or request is None or family is None or family.is_unknown(place.group):
            return
        if family.is_only(job, place.group):
            family.add(job, place.group, request)
            decision = Decision(place.group, "first", "first run of this work")
            self._places[job] = place._replace(how=decision.how, reason=decision.reason, request=request, asked=asked)
            self._late.append(Assigned(job, place.group, asked))
            self._write(job, family.name, decision, now)

    def _wait(self, job: str, now: float) -> _Waiting:
        return lru.get(self._waiting, job, lambda: _Waiting(now), JOBS)

    def step(self, now: float) -> list[Assigned]:
        """Assign the jobs of which all is known, or that have waited long enough. now: Unix seconds."""
        assigned, self._late = self._late, []
        for job, waiting in list(self._waiting.items()):
            expects = self._has_evidence or job in self._recorded
            ready = waiting.has_evidence or waiting.is_over or not expects
            if waiting.row is None or not (ready or now - waiting.seen_at > WAIT_SECONDS):
                continue
            del self._waiting[job]
            with self.quarantine.guard("recognise", job):
                assigned.append(Assigned(job, self._assign(job, waiting, now), waiting.asked))
        for job, fresh in list(self._fresh.items()):
            if job in self._waiting:
                continue
            del self._fresh[job]
            with self.quarantine.guard("recognise", job):
                for when in fresh:
                    if (group := self._assign_again(job, when, now)) is not None:
                        assigned.append(Assigned(job, group, self._places[job].asked, by_traffic=True))
        return assigned

    def forget(self, job: str) -> None:
        """Forget a job that has not ended."""
        self._waiting.pop(job, None)
        self._places.pop(job, None)
        self._signatures.pop(job, None)
        self._fresh.pop(job, None)

    def _assign_again(self, job: str, when: float, now: float) -> str | None:
        """The other group of a job, of which is known now what it communicates; None to stay."""
        place = self._places.get(job)
        family = self._families.get(place.family) if place is not None else None
        if place is None or family is None or place.group not in family.groups:
            return None
        signature = self._signatures.get(job, {}).get(when)
        if signature is None:  # forgotten since there were too many
            return None
        decision = family.decide_again(job, place.group, place.request, when, signature)
        if decision is None:
            return None
        family.move(job, place.group, decision, place.request)
        self._places[job] = place._replace(
            group=decision.group, how=decision.how, reason=decision.reason, differ=frozenset()
        )
        self._write(job, family.name, decision, now)
        return decision.group

    def confirm(self, job: str, now: float, *, is_doubtful: bool) -> None:
        """Write that a job that has ended remains in its group, if it is_doubtful or has communicated: alerts waits."""
        place = self._places.get(job)
        family = self._families.get(place.family) if place is not None else None
        is_due = (is_doubtful or job in self._signatures) and all(one.columns["job"] != job for one in self.outputs)
        if is_due and place is not None and family is not None and not place.is_recorded:
            self._write(job, family.name, Decision(place.group, place.how, place.reason), now)

    def separate(self, job: str, points: int, time: RunTime | None, now: float) -> Assigned | None:
        """The own group of a job that has ended, slow or fast, with another number of sync points than its group.

        time: how long it took, None if unknown. None where no runs of the request have done different work, or where
        the run stops by the clock: its verdict stands.
        """
        place, signature = self._places.get(job), self._signatures.get(job)
        family = self._families.get(place.family) if place is not None else None
        if place is None or family is None or place.group not in family.groups:
            return None
        is_stopped = family.groups[place.group].stops_by_the_clock(time)
        if not family.is_open or not signature or place.how == "like" or is_stopped:
            return None
        decision = family.separate(job, place.group, place.request, signature, points)
        self._places[job] = place._replace(group=decision.group, how=decision.how, reason=decision.reason)
        self._write(job, family.name, decision, now)
        return Assigned(job, decision.group, place.asked, by_traffic=True)

    def _assign(self, job: str, waiting: _Waiting, now: float) -> str:
        assert waiting.row is not None
        key, family = self._family(waiting.row)
        decision = family.decide(waiting.request)
        request = waiting.request
        if (recorded := self._recorded.pop(job, None)) is not None:
            decision = decision._replace(group=recorded)
            if family.is_unknown(recorded):
                # What it asked for came too late then, and belongs to the group of those that asked for it in time.
                request = waiting.asked = None
        elif waiting.reason and request is None:
            decision = decision._replace(reason=f"{decision.reason}: {waiting.reason[:MAX_REASON]}")
        family.add(job, decision.group, request, known=recorded is not None)
        if request is not None and decision.how != "same":
            self._size += memory([request])
        if self._size > MAX_BYTES:
            # Of families that had no job for longest.
            groups = {name: family.groups.values() for name, family in self._families.items()}
            sizes = {name: sum(memory(one.requests) for one in every) for name, every in groups.items()}
            self._size = sum(sizes.values())
            while self._size > KEPT_SHARE * MAX_BYTES and len(self._families) > 1:
                self._size -= sizes[self._families.popitem(last=False)[0]]
        place = _Place(key, *decision[:3], request, waiting.asked, decision.differ, recorded is not None)
        lru.store(self._places, job, place, JOBS)
        if recorded is None:
            self._write(job, family.name, decision, now)
        return decision.group

    def _family(self, row: Mapping[str, Any]) -> tuple[str, Family]:
        """The family of a job's owner, and its key."""
        name, owner = row["workload"], self._owner(row)
        # What is learned to matter is the owner's too: else it could be taught to others.
        relevance = lru.get(self._relevance, f"{row['cluster']}/{row['app']} {owner}", Relevance, APPLICATIONS)
        first = self._families.get(name)
        is_first = first is None or first.owner == owner
        key = name if is_first else f"{name} {owner}"
        make = partial(Family, name, relevance, owner, is_first=is_first)
        return key, lru.get(self._families, key, make, FAMILIES)

    def group_of(self, cluster: str, app: str, user: str, ranks: int, nodes: int | None, request: Request) -> str:
        """The group that a run of a user would be of, at any number of nodes where it is None; empty without one."""
        owner = self._owner({"user": user})
        name = f"{cluster}/{app}@{ranks}x{'' if nodes is None else nodes}"
        for family in reversed(self._families.values()):
            is_meant = family.name.startswith(name) if nodes is None else family.name == name
            if is_meant and family.owner == owner and (found := family.decide(request)).how in ("same", "like"):
                return found.group
        return ""

    def _owner(self, row: Mapping[str, Any]) -> str:
        """Whose history a job belongs to, by its row of `jobs`."""
        if self._histories == "shared":
            return ""
        user = str(row.get("user", ""))
        return user if self._histories == "user" else str(row.get("account") or user)

    def end(
        self,
        job: str,
        *,
        healthy: bool,
        other_length: int = 0,
        is_like: Callable[[str, str], bool],
        now: float,
        time: RunTime | None = None,
    ) -> Merge | None:
        """Learn from a job that was learned, or, unless `healthy`, withheld; the merge of its group with another.

        other_length: its number of sync points, if those of its group had another one. is_like: whether the runs of two
        groups do the same at the same pace. time: how long it took, None if unknown.
        """
        place = self._places.pop(job, None)
        signature = self._signatures.pop(job, {})
        family = self._families.get(place.family) if place is not None else None
        if place is None or family is None or place.group not in family.groups:
            return None
        if place.how == "like" and place.request is not None:
            family.learn(place.group, place.request, place.differ, healthy=healthy)
        if not healthy:
            is_stopped = family.groups[place.group].stops_by_the_clock(time)
            if other_length and signature and place.how != "like" and not is_stopped:
                decision = family.separate(job, place.group, place.request, signature, other_length)
                self._write(job, family.name, decision, now)
            return None
        if time is not None and family.may_be_disturbed(place.group, time):
            merge = family.prove(place.group, signature, time)
        else:
            family.groups[place.group].learn(signature, time)
            merge = family.merge(place.group, lambda other: is_like(place.group, other))
        if merge is not None:
            self._write_merge(family, merge, now)
        return merge

    def join(self, name: str, other: str, reason: str, now: float) -> Merge:
        """Merge a group with another because somebody says so. Raises UnknownWork."""
        family = self._known(name)
        if name == other or self._known(other) is not family:
            raise UnknownWork(f"{other} is not another group of {family.name}: of one application, ranks and nodes")
        merge = family.join(name, other, reason)
        self._write_merge(family, merge, now)
        return merge

    def split(self, name: str, features: frozenset[str], at: float) -> list[str]:
        """Make a group several because somebody says that these features matter; their names. Raises UnknownWork.

        at: when it was said. Running jobs stay in the group.
        """
        return self._known(name).split(name, features, str(at))

    def _known(self, group: str) -> Family:
        """The family of a group. Raises UnknownWork."""
        name = family_of(group)
        for family in self._families.values():
            if family.name == name and group in family.groups:
                return family
        raise UnknownWork(f"{group} is no group that the modeler knows: it was merged, split, or is long unused")

    def _write_merge(self, family: Family, merge: Merge, now: float) -> None:
        decision = Decision(merge.into, "merged", merge.reason)
        for one in merge.jobs:
            if one in self._places:
                known = self._places[one]
                self._places[one] = known._replace(group=merge.into, how=decision.how, reason=decision.reason)
            self._write(one, family.name, decision, now)

    def _write(self, job: str, family: str, decision: Decision, now: float) -> None:
        columns = {"job": job, "workload": decision.group, "family": family, "how": decision.how}
        self.outputs.append(Output("assignments", 1, {**columns, "reason": decision.reason, "time": now}))


def memory(requests: Iterable[Request]) -> int:
    """Estimated bytes of requests, each in a group of its own."""
    return sum(2_500 + 160 * len(one.features) for one in requests)


def _rows(columns: Mapping[str, Column]) -> list[dict[str, Any]]:
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
