"""Sample articles in several languages."""

from datetime import UTC, datetime, timedelta
from typing import Any


def sample_articles() -> list[dict[str, Any]]:
    """Documents for the collection `articles`, crawled in the last hours."""
    now = datetime.now(UTC)
    return [
        {
            "_id": f"sample-{number}",
            "platform": platform,
            "category": category,
            "title": title,
            "url": f"https://news.example/{number}",
            "content": content,
            "created_at": now - timedelta(minutes=10 * (len(_SAMPLES) - number)),
        }
        for number, (platform, category, title, content) in enumerate(_SAMPLES)
    ]


_SAMPLES = [
    ("naver", "기술", "달 탐사선, 무사히 착륙 🌕", "탐사선이 오늘 새벽 달의 남극 가까이에 내려앉았다."),
    ("naver", "경제", "전기요금 내년에도 동결", "물가를 고려한 결정이라고 정부는 밝혔다."),
    ("reuters", "world", "Tide barrier holds through the storm", "The gates closed an hour before high water."),
    ("xinhua", "科技", "新望远镜拍到最远星系 🔭", "天文学家说,它的光走了一百三十亿年。"),
    ("ansa", "cultura", "Riapre la biblioteca dopo dieci anni", "Novantamila volumi tornano sugli scaffali."),
    ("nhk", "社会", "桜の開花、平年より五日早く 🌸", "気象台によると、暖かい日が続いたためという。"),
    ("reuters", "tech", "@everyone is not a headline", "An article may say @everyone and @here; it notifies no user."),
    ("aljazeera", "عالم", "اكتشاف مدينة قديمة تحت الرمال", "قال علماء الآثار إن عمرها ثلاثة آلاف عام."),
]
