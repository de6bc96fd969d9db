from ai_tagger.cli import main

main()
