"""OpenStack Swift with its S3 API as one process: `python swift_server.py DIRECTORY PORT RESERVE`.

Proxy, account, container and object server listen on PORT and the three behind it. With less than
RESERVE free, as in 1%, it takes no objects. Prints a line when it listens.
"""

from __future__ import annotations

import sys
from pathlib import Path

import eventlet

eventlet.monkey_patch()

from eventlet import wsgi  # noqa: E402 - after the patch
from swift.common import storage_policy, utils  # noqa: E402
from swift.common.ring import RingBuilder  # noqa: E402
from swift.common.utils import config  # noqa: E402
from swift.common.wsgi import loadapp  # noqa: E402

KINDS = ("account", "container", "object")
PROXY = """
[DEFAULT]
swift_dir = {root}
[pipeline:main]
pipeline = catch_errors gatekeeper cache s3api tempauth bulk slo dlo proxy-server
[app:proxy-server]
use = egg:swift#proxy
account_autocreate = true
[filter:catch_errors]
use = egg:swift#catch_errors
[filter:gatekeeper]
use = egg:swift#gatekeeper
[filter:cache]
use = egg:swift#memcache
[filter:bulk]
use = egg:swift#bulk
[filter:slo]
use = egg:swift#slo
[filter:dlo]
use = egg:swift#dlo
[filter:s3api]
use = egg:swift#s3api
location = us-east-1
[filter:tempauth]
use = egg:swift#tempauth
user_lake_barograph = secret .admin
user_other_stranger = secret
"""
SERVER = """
[DEFAULT]
swift_dir = {root}
devices = {root}/node
mount_check = false
[pipeline:main]
pipeline = {kind}-server
[app:{kind}-server]
use = egg:swift#{kind}
"""


def main(root: Path, port: int, reserve: str) -> None:
    """Serve until killed."""
    (root / "node/sda").mkdir(parents=True, exist_ok=True)
    policies = "[swift-hash]\nswift_hash_path_suffix = test\n[storage-policy:0]\nname = one\ndefault = yes\n"
    (root / "swift.conf").write_text(policies)
    for module in (utils, config):
        module.SWIFT_CONF_FILE = str(root / "swift.conf")
    utils.HASH_PATH_SUFFIX = b"test"
    utils.FALLOCATE_RESERVE, utils.FALLOCATE_IS_PERCENT = utils.config_fallocate_value(reserve)
    storage_policy.reload_storage_policies()
    (root / "proxy.conf").write_text(PROXY.format(root=root))
    for number, kind in enumerate(KINDS, 1):
        text = SERVER.format(root=root, kind=kind)
        (root / f"{kind}.conf").write_text(text)
        ring = RingBuilder(2, 1, 1)
        place = {"ip": "127.0.0.1", "port": port + number}
        replication = {"replication_ip": place["ip"], "replication_port": place["port"]}
        ring.add_dev({"region": 1, "zone": 1, "device": "sda", "weight": 1.0, **place, **replication})
        ring.rebalance()
        ring.get_ring().save(str(root / f"{kind}.ring.gz"))
    for number, kind in enumerate(("proxy", *KINDS)):
        listener = eventlet.listen(("127.0.0.1", port + number))
        served = eventlet.spawn(wsgi.server, listener, loadapp(str(root / f"{kind}.conf")), log_output=False)
    print("listening", flush=True)
    served.wait()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
