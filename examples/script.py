"""Without async: a plain script, or a Flask view, with a workflow that is a plain function.

In a web application, open one `SyncEngine` per process and use it from every thread.
"""

from __future__ import annotations

import perdure


@perdure.step
def fetch(customer: str) -> list[int]:
    print(f"fetching the invoices of {customer}")
    return [1999, 4900, 350]


@perdure.step(retry=perdure.Retry(attempts=3))
def render(customer: str, cents: int) -> str:
    print("rendering")
    return f"{customer} owes {cents / 100:.2f}"


@perdure.workflow
def statement(customer: str) -> str:
    invoices = fetch(customer)
    perdure.blocking.checkpoint("fetched", len(invoices))
    perdure.blocking.sleep("200ms")  # durable
    return render(customer, sum(invoices))


def main() -> None:
    with perdure.SyncEngine("sqlite:///statements.db", [statement]) as engine:
        run = engine.start(statement, "ada", id="statement-ada", tags={"customer": "ada"})
        print(run.result(timeout="30s"))
        for info in engine.list(tag={"customer": "ada"}):
            print(f"{info.id}: {info.status}")


if __name__ == "__main__":
    main()
