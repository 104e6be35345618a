"""Tables, connections and exchange of the cost database; :mod:`unity_collage.cost.database` is the door."""
