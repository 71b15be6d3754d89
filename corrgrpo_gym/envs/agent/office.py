"""The state of an office, its tools, and what they do to it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

PEOPLE = ("@ann", "@bob", "@cleo", "@dan", "@eve", "@finn", "@gus", "@hana", "@ida", "@jon", "@kim", "@leo")


@dataclass(frozen=True, slots=True)
class Mail:
    """A message in the mailbox.

    Attributes:
        sender: one of PEOPLE.
        body: its text.
    """

    sender: str
    body: str


@dataclass(frozen=True, slots=True)
class Sent:
    """That a message was sent.

    Attributes:
        to: one of PEOPLE.
        text: its text.
    """

    to: str
    text: str


@dataclass(frozen=True, slots=True)
class Event:
    """That an event stands in the calendar.

    Attributes:
        day: its day.
    """

    day: int


Deed = Sent | Event


def _schema(name: str, description: str, **parameters: str) -> dict[str, Any]:
    properties = {key: {"type": kind} for key, kind in parameters.items()}
    schema = {"type": "object", "properties": properties, "required": list(parameters)}
    return {"type": "function", "function": {"name": name, "description": description, "parameters": schema}}


TOOLS: tuple[dict[str, Any], ...] = (
    _schema("list_mail", "Lists who has written."),
    _schema("read_mail", "Shows what a person has written.", sender="string"),
    _schema("send_mail", "Sends a mail to a person.", to="string", text="string"),
    _schema("add_event", "Puts an event in the calendar.", day="integer"),
)


@dataclass(slots=True)
class Office:
    """What the tools work on.

    Attributes:
        mails: in the mailbox, one of each sender.
        deeds: what was sent and put in the calendar, in order.
        read: senders of the mails that were shown.
    """

    mails: Sequence[Mail]
    deeds: list[Deed] = field(default_factory=list)
    read: set[str] = field(default_factory=set)

    def call(self, name: str, arguments: Mapping[str, Any]) -> str:
        """Execute a call that passed its schema.

        Returns:
            What the tool says; where the call could not be done, why, and nothing has changed.
        """
        match name:
            case "list_mail":
                return f"Mail from {', '.join(mail.sender for mail in self.mails)}."
            case "read_mail":
                return self._show(arguments["sender"])
            case "send_mail":
                if arguments["to"] not in PEOPLE:
                    return "There is no such person."
                self.deeds.append(Sent(arguments["to"], arguments["text"]))
                return "Sent."
            case _:
                self.deeds.append(Event(arguments["day"]))
                return "Added."

    def _show(self, sender: str) -> str:
        for mail in self.mails:
            if mail.sender == sender:
                self.read.add(sender)
                return mail.body
        return "There is no such mail."
