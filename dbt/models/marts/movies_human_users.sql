-- ml-latest-small, ml-25m and ml-32m tell nothing of their users; nothing is guessed.
{{ human_users(ref('int_movies__interactions'), people=ref('int_movies__people')) }}
