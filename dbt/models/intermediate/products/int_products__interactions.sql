{{ kept_interactions(ref('int_products__ratings')) }}
