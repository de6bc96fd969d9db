from news_publisher.cli import main

main()
