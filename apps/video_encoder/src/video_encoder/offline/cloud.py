"""Creates what the encoder needs on a server that speaks AWS's protocols: a bucket, its events, queues."""

import json
from typing import Any

import boto3

from video_encoder.bucket import RAW

_BELOW_RAW = {"Key": {"FilterRules": [{"Name": "prefix", "Value": RAW}]}}  # not the objects that the encoder writes
QUEUE, DEAD = "videos", "videos-dead"


def create(endpoint: str, bucket: str = "videos", *, events: bool = False) -> dict[str, str]:
    """Create bucket and queues; return the variables for the encoder. events: the bucket reports new uploads."""
    sqs, s3 = (boto3.client(service, endpoint_url=endpoint) for service in ("sqs", "s3"))
    try:
        dead = _arn(sqs, sqs.create_queue(QueueName=DEAD)["QueueUrl"])
        policy = json.dumps({"deadLetterTargetArn": dead, "maxReceiveCount": 20})
        url = sqs.create_queue(QueueName=QUEUE, Attributes={"RedrivePolicy": policy})["QueueUrl"]
        region = s3.meta.region_name
        s3.create_bucket(Bucket=bucket, CreateBucketConfiguration={"LocationConstraint": region})
        if events:
            s3.put_bucket_notification_configuration(
                Bucket=bucket,
                NotificationConfiguration={
                    "QueueConfigurations": [
                        {"QueueArn": _arn(sqs, url), "Events": ["s3:ObjectCreated:*"], "Filter": _BELOW_RAW}
                    ]
                },
            )
    finally:
        sqs.close()
        s3.close()
    return {"ENCODER_BUCKET": bucket, "ENCODER_S3_ENDPOINT": endpoint, "ENCODER_QUEUE_URL": url}


def _arn(sqs: Any, url: str) -> str:
    found = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])
    return str(found["Attributes"]["QueueArn"])
