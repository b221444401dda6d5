{{ human_users(ref('int_own__interactions'), people=ref('stg_own__users')) }}
