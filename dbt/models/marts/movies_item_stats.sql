-- Ties by the film's number, so that `ml:2` comes before `ml:10`.
{{ item_stats(ref('int_movies__items'), ref('int_movies__user_splits'), item='movie_id') }}
