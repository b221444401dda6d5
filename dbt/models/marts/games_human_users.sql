-- Steam tells nothing of its users; nothing is guessed.
{{ human_users(ref('int_games__interactions')) }}
