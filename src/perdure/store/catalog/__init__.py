"""What a database knows of versions: their code, their labels, what routes lead to them, and who changed what.

`base` is the contract; `sql` keeps it on every database by named statements, `memory` in plain dictionaries. What a
registration comes to is decided in `registration`, from data, so that every backend decides alike.
"""
