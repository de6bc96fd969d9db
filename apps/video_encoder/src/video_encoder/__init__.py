"""Uploaded videos become HLS ladders in a bucket: UPLOADED → PROCESSING → READY, one row each."""

from video_encoder.opening import open_queue
from video_encoder.pipeline import videos
from video_encoder.repository import VideoRepository
from video_encoder.status import Video, VideoStatus, find_video, list_videos
from video_encoder.uploads import Upload, create_upload, upload_file, uploaded

__all__ = [
    "Upload",
    "Video",
    "VideoRepository",
    "VideoStatus",
    "create_upload",
    "find_video",
    "list_videos",
    "open_queue",
    "upload_file",
    "uploaded",
    "videos",
]
