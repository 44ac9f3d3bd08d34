from askfirst import SyncGate

gate = SyncGate("sqlite:///askfirst.db")


@gate.guarded(sentence="Pay back {cents:money:EUR} for order {order}")
def refund(order: str, cents: int) -> str:
    return f"paid {cents} cents for {order}"


print(refund("A-1042", 4900))
