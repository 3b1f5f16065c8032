"""Prints how long rows take into view `bench.viewed_by_owner`, from the acknowledgement of the write until a reader sees it, in ms, as JSON:
lag.py ADDRESS:PORT SECONDS FIRST_ID."""

import json
import sys
import time

from cassandra.cluster import Cluster

PAUSE_SECONDS, LOOK_SECONDS = 0.03, 0.001

host, port = sys.argv[1].rsplit(":", 1)
seconds, row = float(sys.argv[2]), int(sys.argv[3])
cluster = Cluster([host], port=int(port))
session = cluster.connect("bench")
insert = session.prepare("INSERT INTO viewed (id, owner) VALUES (?, ?)")
select = session.prepare("SELECT id FROM viewed_by_owner WHERE owner = ?")
lags_ms = []
end = time.monotonic() + seconds
while time.monotonic() < end:
    session.execute(insert, [row, row])
    acknowledged = time.monotonic()
    while session.execute(select, [row]).one() is None:
        time.sleep(LOOK_SECONDS)
    lags_ms.append((time.monotonic() - acknowledged) * 1_000)
    row += 1
    time.sleep(PAUSE_SECONDS)
lags_ms.sort()
found = {f"p{percent}": round(lags_ms[len(lags_ms) * percent // 100], 1) for percent in (50, 99)}
print(json.dumps({"count": len(lags_ms), "max": round(lags_ms[-1], 1), **found}))
cluster.shutdown()
