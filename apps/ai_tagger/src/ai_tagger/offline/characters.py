"""Simplified Chinese characters of the tagger's words, and their traditional forms."""

_SIMPLIFIED = (
    "万专业东个丽乐习书买云亿仓价众传伤伦体养兽写决减创券剧务动医单卖卤厅压厨发号听员团围国图圆场垒垦复头"
    "奖奥学宠导寿岛师库应开张当忧戏户抢护报换时显术机杀杂来枫检欧毕汇汉汤测浏涨点烧爱状猫环电盘码礼种税签"
    "篮类红纸线练绒结绝统维综缴网职脑脸艺苹药莲萤营虑补衬装裤观视览觉训记论证诊试读课谱账货购贵贷费资赚赛"
    "车轮软辑过运还进远连钟钢钱铁银锅键长门间队险韩颁预领颈频题颜风飞饭饰饲饺饼馆馒马骇鸡鹉鹦"
)
_TRADITIONAL = (
    "萬專業東個麗樂習書買雲億倉價眾傳傷倫體養獸寫決減創劵劇務動醫單賣滷廳壓廚發號聽員團圍國圖圓場壘墾復頭"
    "獎奧學寵導壽島師庫應開張當憂戲戶搶護報換時顯術機殺雜來楓檢歐畢匯漢湯測瀏漲點燒愛狀貓環電盤碼禮種稅簽"
    "籃類紅紙線練絨結絕統維綜繳網職腦臉藝蘋藥蓮螢營慮補襯裝褲觀視覽覺訓記論證診試讀課譜帳貨購貴貸費資賺賽"
    "車輪軟輯過運還進遠連鐘鋼錢鐵銀鍋鍵長門間隊險韓頒預領頸頻題顏風飛飯飾飼餃餅館饅馬駭雞鵡鸚"
)
_TABLE = str.maketrans(_SIMPLIFIED, _TRADITIONAL)


def traditional(text: str) -> str:
    """Return the text with traditional characters, as far as the tagger's words need them."""
    return text.translate(_TABLE)
