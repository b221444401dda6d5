select
    user_id,
    gender,
    case
        when age_code is not null then
            case age_code
                when 1 then 'under 18' when 18 then '18-24' when 25 then '25-34' when 35 then '35-44'
                when 45 then '45-49' when 50 then '50-55' when 56 then '56+'
            end
        when age < 18 then 'under 18'
        when age < 25 then '18-24'
        when age < 35 then '25-34'
        when age < 45 then '35-44'
        when age < 50 then '45-49'
        when age < 56 then '50-55'
        when age >= 56 then '56+'
    end as age_band,
    age,
    case
        when occupation_code is not null then [
            'other', 'academic/educator', 'artist', 'clerical/admin', 'college/grad student', 'customer service',
            'doctor/health care', 'executive/managerial', 'farmer', 'homemaker', 'K-12 student', 'lawyer', 'programmer',
            'retired', 'sales/marketing', 'scientist', 'self-employed', 'technician/engineer', 'tradesman/craftsman',
            'unemployed', 'writer'
        ][occupation_code + 1]
        else nullif(trim(occupation), '')
    end as occupation,
    nullif(trim(zip), '') as zip
from {{ source('raw', 'movielens_users') }}
