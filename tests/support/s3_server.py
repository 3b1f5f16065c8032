"""S3 on a free loopback port, for tests: moto, with one bucket and one user whose keys it checks.

A program of its own, in the environment that has moto. It prints one line of JSON with the endpoint and the keys, and serves until its standard
input ends.
"""

import json
import sys

import boto3
import moto.settings
from moto.server import ThreadedMotoServer

REGION = "us-east-1"
ANYBODY = {"region_name": REGION, "aws_access_key_id": "anybody", "aws_secret_access_key": "anything"}


def main():
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    endpoint = f"http://{host}:{port}"
    boto3.client("s3", endpoint_url=endpoint, **ANYBODY).create_bucket(Bucket="backups")
    users = boto3.client("iam", endpoint_url=endpoint, **ANYBODY)
    users.create_user(UserName="helenus")
    keys = users.create_access_key(UserName="helenus")["AccessKey"]
    allowed = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "s3:*", "Resource": "*"}]}
    users.put_user_policy(UserName="helenus", PolicyName="all", PolicyDocument=json.dumps(allowed))
    # From here on keys are checked.
    moto.settings.INITIAL_NO_AUTH_ACTION_COUNT = 0
    told = {"endpoint": endpoint, "region": REGION, "bucket": "backups", "key": keys["AccessKeyId"], "secret": keys["SecretAccessKey"]}
    print(json.dumps(told), flush=True)
    sys.stdin.read()
    server.stop()


if __name__ == "__main__":
    main()
