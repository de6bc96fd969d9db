"""A FastAPI app that writes letters in background tasks. Run it in this folder: uvicorn letters:app"""

from fastapi import FastAPI, HTTPException
from pydantic import BaseModel

from onerow import AsyncContext, Pipeline, Queue, UnknownName
from onerow.asgi import lifespan


class Letter(BaseModel):
    to: str
    words: int = 100


letters = Pipeline("letters", title="to {to}")


@letters.phase
def write(letter: Letter) -> str:
    return f"Dear {letter.to}, " + "word " * letter.words


@letters.phase
async def send(letter: Letter, write: str, ctx: AsyncContext) -> dict[str, int]:
    ctx.log(f"sending {len(write)} characters")
    return {"characters": len(write)}


queue = Queue("sqlite:///letters.db")
app = FastAPI(lifespan=lifespan(queue, letters, concurrency=4))


@app.post("/letters", status_code=202)
async def add(letter: Letter) -> dict[str, str]:
    task = await queue.add_async(letters, letter)
    return {"task_id": task.task_id}


@app.get("/letters/{task_id}")
async def look(task_id: str) -> dict[str, object]:
    try:
        task = await queue.get_async(task_id)
    except UnknownName:
        raise HTTPException(404) from None
    return {"status": task.status, "phase": task.phase, "result": task.result, "error": task.error}
