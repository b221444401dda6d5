-- Amazon publishes no traits of its reviewers; nothing is guessed.
{{ human_users(ref('int_books__interactions')) }}
